//! An external processor for Envoy that only answers: `warmroute-ext-proc-floor IP:PORT DESTINATION`.
//!
//! It names the same destination for every request, as an endpoint picker does (`x-gateway-destination-endpoint`), and hands
//! each piece of the body back as it came, in the full-duplex mode that the endpoint picker protocol asks for. It reads no
//! prompt, knows no index and chooses nothing: whatever a picker does comes on top of what this costs.

mod messages;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Context as _;
use messages::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeaderValue, HeaderValueOption, HeadersResponse,
    ProcessingRequest, ProcessingResponse, Request, Response, StreamedBodyResponse, TrailersResponse,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

/// The service, for one destination.
#[derive(Clone)]
struct Floor {
    destination: String,
}

type Responses = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().context("where to listen?")?.parse()?;
    let destination = arguments.next().context("which destination?")?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    tonic::transport::Server::builder()
        // As wide as an endpoint picker's: the default windows of 64 KiB would stall every long body.
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .tcp_nodelay(true)
        .add_service(Floor { destination })
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

// === impl Floor ===

impl Floor {
    fn answer(&self, request: ProcessingRequest) -> Option<ProcessingResponse> {
        let response = match request.request? {
            Request::Headers(_) => Response::RequestHeaders(HeadersResponse {
                response: Some(CommonResponse { header_mutation: Some(self.mutation()), body_mutation: None }),
            }),
            Request::Body(body) => {
                let piece = StreamedBodyResponse { body: body.body, end_of_stream: body.end_of_stream };
                let mutation = BodyMutation { streamed_response: Some(piece) };
                Response::RequestBody(BodyResponse {
                    response: Some(CommonResponse { header_mutation: None, body_mutation: Some(mutation) }),
                })
            }
            Request::Trailers(_) => Response::RequestTrailers(TrailersResponse {}),
        };
        Some(ProcessingResponse { response: Some(response) })
    }

    fn mutation(&self) -> HeaderMutation {
        let header = HeaderValue {
            key: "x-gateway-destination-endpoint".to_owned(),
            raw_value: self.destination.clone().into_bytes(),
        };
        HeaderMutation { set_headers: vec![HeaderValueOption { header: Some(header) }] }
    }
}

impl NamedService for Floor {
    const NAME: &'static str = "envoy.service.ext_proc.v3.ExternalProcessor";
}

/// There is one method, so whatever is called is `Process`.
impl Service<http::Request<Body>> for Floor {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let process = Process(self.clone());
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).streaming(process, request).await) })
    }
}

/// One stream: one request through Envoy.
struct Process(Floor);

impl StreamingService<ProcessingRequest> for Process {
    type Response = ProcessingResponse;
    type ResponseStream = Responses;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Responses>, Status>> + Send>>;

    fn call(&mut self, requests: tonic::Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let floor = self.0.clone();
        Box::pin(async move {
            let answers = requests.into_inner().filter_map(move |request| match request {
                Ok(request) => floor.answer(request).map(Ok),
                Err(status) => Some(Err(status)),
            });
            Ok(tonic::Response::new(Box::pin(answers) as Responses))
        })
    }
}
