use axum::Router;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const LIMITS: Limits = Limits { time: Duration::from_secs(5), bytes: 1000 };

async fn serve() -> String {
    let chunks = || async {
        let parts = ["a".repeat(300), "b".repeat(300)].map(|part| Ok::<_, io::Error>(Bytes::from(part)));
        axum::body::Body::from_stream(Parts(parts.into()))
    };
    let app = Router::new()
        .route("/drain", post(|| async { "drained" }))
        .route("/chunks", get(chunks))
        .route("/long", get(|| async { "x".repeat(1001) }))
        .route("/late", get(std::future::pending::<&'static str>));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    tokio::spawn(async { axum::serve(listener, app).await });
    authority
}

/// A body of which nobody tells the length.
struct Parts(Vec<Result<Bytes, io::Error>>);

impl futures_core::Stream for Parts {
    type Item = Result<Bytes, io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.pop())
    }
}

#[tokio::test]
async fn an_answer_has_a_status_and_a_body_of_either_framing() {
    let server = serve().await;
    let (status, body) = ask(Method::POST, &server, "/drain", LIMITS).await.unwrap();
    assert_eq!((status, &*body), (StatusCode::OK, b"drained".as_slice()));
    let (_, body) = ask(Method::GET, &server, "/chunks", LIMITS).await.unwrap();
    assert_eq!(body.len(), 600);
    let (status, _) = ask(Method::GET, &server, "/drain", LIMITS).await.unwrap();
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn no_answer_is_longer_or_later_than_allowed() {
    let server = serve().await;
    let error = ask(Method::GET, &server, "/long", LIMITS).await.unwrap_err();
    assert!(matches!(error, HttpError::TooLong(1000)), "{error}");
    let limits = Limits { time: Duration::from_millis(50), ..LIMITS };
    let error = ask(Method::GET, &server, "/late", limits).await.unwrap_err();
    assert!(matches!(error, HttpError::Timeout(_)), "{error}");
}

#[tokio::test]
async fn a_server_that_was_not_asked_is_told_from_one_that_was() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_buf(&mut vec![]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
    });
    let error = ask(Method::GET, &authority, "/", LIMITS).await.unwrap_err();
    assert!(matches!(error, HttpError::Http(_)), "{error}");
    server.await.unwrap();
    let error = ask(Method::GET, &authority, "/", LIMITS).await.unwrap_err();
    assert!(matches!(error, HttpError::Connect(_)), "{error}");
}
