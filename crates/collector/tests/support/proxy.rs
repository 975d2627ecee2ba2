//! A network that can go silent: connections stay open, and nothing comes through any more.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Passes connections on to another address.
pub struct Proxy {
    /// Its own address, as `tcp://ip:port`.
    pub endpoint: String,
    frozen: watch::Sender<u32>,
    accepting: JoinHandle<()>,
}

// === impl Proxy ===

impl Proxy {
    /// To an endpoint `tcp://ip:port`.
    pub async fn start(to: &str) -> Self {
        let to = to.trim_start_matches("tcp://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let (frozen, seen) = watch::channel(0);
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&to).await.unwrap();
                tokio::spawn(pass(near, far, seen.clone()));
            }
        });
        Self { endpoint, frozen, accepting }
    }

    /// The connections that stand go silent; new ones do not.
    pub fn freeze(&self) {
        self.frozen.send_modify(|times| *times += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(mut near: TcpStream, mut far: TcpStream, mut frozen: watch::Receiver<u32>) {
    frozen.mark_unchanged();
    let (mut from_near, mut from_far) = ([0; 4096], [0; 4096]);
    loop {
        tokio::select! {
            _ = frozen.changed() => {
                // Keeps both connections open for ever.
                std::future::pending::<()>().await;
            }
            read = near.read(&mut from_near) => match read {
                Ok(0) | Err(_) => return,
                Ok(len) => far.write_all(from_near.get(..len).unwrap()).await.unwrap(),
            },
            read = far.read(&mut from_far) => match read {
                Ok(0) | Err(_) => return,
                Ok(len) => near.write_all(from_far.get(..len).unwrap()).await.unwrap(),
            },
        }
    }
}
