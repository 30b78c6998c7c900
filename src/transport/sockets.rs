//! Streams over the operating system's sockets: TCP, TLS over TCP, and Unix sockets.

use super::address::{Address, TcpAddress};
use super::socket::Socket;
use super::{Stream, Transport};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::protocol::STALE_WINDOW;
use futures::future::{BoxFuture, select_ok};
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};

#[cfg(feature = "tls-rustls")]
use super::tls::{self, TlsFiles};
#[cfg(feature = "rustls-0-23")]
use rustls::ClientConfig;
#[cfg(feature = "rustls-0-23")]
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Sockets {
    #[cfg(feature = "tls-rustls")]
    tls: Tls,
}

#[cfg(feature = "tls-rustls")]
#[derive(Clone)]
pub(crate) enum Tls {
    #[cfg(feature = "rustls-0-23")]
    Config(Arc<ClientConfig>),
    /// PEM files, which the client reads again for each new connection.
    Files(TlsFiles),
}

#[cfg(feature = "tls-rustls")]
impl Default for Tls {
    fn default() -> Self {
        Self::Files(TlsFiles::default())
    }
}

impl Sockets {
    #[cfg(feature = "tls-rustls")]
    pub(crate) fn with_tls(tls: Tls) -> Self {
        Self { tls }
    }

    async fn connect(&self, to: &Address) -> io::Result<Box<dyn Stream>> {
        match to {
            Address::Tcp(server) => {
                let connect = tcp;
                Ok(Box::new(race(resolve(server).await?, connect).await?))
            }
            #[cfg(feature = "tls-rustls")]
            Address::Tls(server) => {
                let config = match &self.tls {
                    #[cfg(feature = "rustls-0-23")]
                    Tls::Config(config) => config.clone(),
                    Tls::Files(files) => files.load().await?,
                };
                let connect = |address| {
                    let config = config.clone();
                    async move {
                        let stream = tcp(address).await?;
                        tls::shake_hands(config, &server.host, stream).await
                    }
                };
                Ok(Box::new(race(resolve(server).await?, connect).await?))
            }
            #[cfg(unix)]
            Address::Unix(path) => Ok(Box::new(Socket::new(UnixStream::connect(path).await?))),
        }
    }
}

impl Transport for Sockets {
    fn connect<'a>(&'a self, to: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.connect(to))
    }
}

async fn resolve(server: &TcpAddress) -> io::Result<Vec<SocketAddr>> {
    Ok(lookup_host((server.host.as_str(), server.port)).await?.collect())
}

/// Connects to all `addresses` concurrently. Returns the first established stream and drops the other attempts. If all
/// attempts fail, returns the last error.
async fn race<S, F>(addresses: Vec<SocketAddr>, connect: impl Fn(SocketAddr) -> F) -> io::Result<S>
where
    F: Future<Output = io::Result<S>>,
{
    if addresses.is_empty() {
        return Err(io::Error::other("no address found for the host name"));
    }
    let tries = addresses.into_iter().map(|address| Box::pin(connect(address)));
    let (stream, _) = select_ok(tries).await?;
    Ok(stream)
}

async fn tcp(address: SocketAddr) -> io::Result<Socket<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // After this time, the kernel drops bytes that were not delivered (I8: an old command must not arrive late).
        socket.set_tcp_user_timeout(Some(STALE_WINDOW))?;
    }
    Ok(Socket::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        (listener, address)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn sockets_have_no_delay_and_the_user_timeout() {
        let (_listener, address) = listener().await;
        let stream = tcp(address).await.expect("it listens");
        let socket = stream.system();
        assert!(socket.tcp_nodelay().expect("a socket"));
        assert_eq!(socket.tcp_user_timeout().expect("a socket"), Some(STALE_WINDOW));
    }

    #[tokio::test]
    async fn connect_tries_every_address_and_reports_the_last_error() {
        let addresses =
            |ports: &[u16]| ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
        let connect = |address: SocketAddr| async move {
            match address.port() {
                1 => std::future::pending().await,
                2 => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                port => Ok(port),
            }
        };
        for ports in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
            assert_eq!(race(addresses(&ports), connect).await.expect("one connects"), 3);
        }
        let refused = race(addresses(&[2, 2]), connect).await.expect_err("none connects");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let nowhere = race(addresses(&[]), connect).await.expect_err("there is none");
        assert_eq!(nowhere.to_string(), "no address found for the host name");
    }

    #[tokio::test]
    async fn host_name_is_resolved() {
        let (_listener, address) = listener().await;
        // The name may also have an IPv6 address, at which no server listens.
        let server = TcpAddress { host: "localhost".to_owned(), port: address.port() };
        assert!(resolve(&server).await.expect("a name").contains(&address));
        assert!(Sockets::default().connect(&Address::Tcp(server)).await.is_ok());
    }
}
