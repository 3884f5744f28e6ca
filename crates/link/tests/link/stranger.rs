//! A peer that speaks QUIC and TLS as it should, and whatever it likes above them.

use crate::service::{INVITATION, VOLUME, within};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use std::net::SocketAddr;
use std::sync::Arc;

/// How a stranger presents itself.
pub struct Manners {
    pub alpn: &'static [u8],
    pub shows_key: bool,
}

pub const GOOD: Manners = Manners { alpn: b"farfs", shows_key: true };

pub struct Stranger {
    pub connection: Connection,
    _endpoint: Endpoint,
}

impl Stranger {
    pub async fn call(server: SocketAddr) -> Stranger {
        Stranger::call_with(server, GOOD).await.unwrap()
    }

    pub async fn call_with(
        server: SocketAddr,
        manners: Manners,
    ) -> Result<Stranger, ConnectionError> {
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(BelievesAnybody));
        let mut config = if manners.shows_key {
            let (key, _) = key();
            config.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)))
        } else {
            config.with_no_client_auth()
        };
        config.alpn_protocols = vec![manners.alpn.to_vec()];
        let config = QuicClientConfig::try_from(config).unwrap();
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(config));
        let connection = within(endpoint.connect_with(config, server, "farfs").unwrap()).await?;
        Ok(Stranger { connection, _endpoint: endpoint })
    }

    /// Says hello as an invited device, and is welcomed.
    pub async fn admitted(server: SocketAddr) -> (Stranger, SendStream, RecvStream) {
        let stranger = Stranger::call(server).await;
        let (mut say, mut hear) = stranger.connection.open_bi().await.unwrap();
        say.write_all(&on_first_stream(&hello())).await.unwrap();
        let mut welcome = [0; 4];
        within(hear.read_exact(&mut welcome)).await.unwrap();
        let mut frame = vec![0; u32::from_be_bytes(welcome) as usize];
        within(hear.read_exact(&mut frame)).await.unwrap();
        // Class 0, not compressed; number 0 of the answers; version 1, and it can be regulated.
        assert_eq!(frame, [0, 0x82, 0, 0x82, 1, 0xf5]);
        (stranger, say, hear)
    }

    /// Sends `bytes` as a request of its own, and reads the whole answer.
    pub async fn request(&self, bytes: &[u8]) -> Vec<u8> {
        let (mut send, mut receive) = within(self.connection.open_bi()).await.unwrap();
        // A server that has read enough stops the stream, and answers.
        let _ = send.write_all(bytes).await;
        let _ = send.finish();
        within(receive.read_to_end(1 << 20)).await.unwrap()
    }

    pub async fn closed(&self) -> ConnectionError {
        within(self.connection.closed()).await
    }
}

/// A server of whatever key, that takes one caller.
pub struct FalseServer {
    pub endpoint: Endpoint,
    /// DER SubjectPublicKeyInfo.
    pub public_key: Vec<u8>,
}

impl FalseServer {
    pub fn start() -> FalseServer {
        let (key, public_key) = key();
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(BelievesAnybody))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        config.alpn_protocols = vec![b"farfs".to_vec()];
        let config = QuicServerConfig::try_from(config).unwrap();
        let config = quinn::ServerConfig::with_crypto(Arc::new(config));
        let endpoint = Endpoint::server(config, ([127, 0, 0, 1], 0).into()).unwrap();
        FalseServer { endpoint, public_key }
    }

    /// The next caller, and its first stream after the hello has been read.
    pub async fn accept(&self) -> (Connection, SendStream, RecvStream) {
        let connection = within(self.endpoint.accept()).await.unwrap().await.unwrap();
        let (say, mut hear) = within(connection.accept_bi()).await.unwrap();
        let mut length = [0; 4];
        within(hear.read_exact(&mut length)).await.unwrap();
        let mut hello = vec![0; u32::from_be_bytes(length) as usize];
        within(hear.read_exact(&mut hello)).await.unwrap();
        (connection, say, hear)
    }
}

fn key() -> (Arc<CertifiedKey>, Vec<u8>) {
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let private = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
    let private = default_provider().key_provider.load_private_key(private).unwrap();
    let public = pair.subject_public_key_info();
    let key = CertifiedKey::new(vec![CertificateDer::from(public.clone())], private);
    (Arc::new(key), public)
}

pub const WELCOME: &[u8] = &[0, 0x82, 0, 0x81, 1];

/// A hello, as docs/PROTOCOL.md has it.
pub fn hello() -> Vec<u8> {
    let mut frame = vec![0];
    let mut encoder = minicbor::Encoder::new(&mut frame);
    let encoded = encoder.array(2).and_then(|e| e.u8(0)).and_then(|e| e.array(1));
    let encoded = encoded.and_then(|e| e.array(5)?.array(2)?.u8(1)?.u8(1));
    let encoded = encoded.and_then(|e| e.str("stranger")?.str(VOLUME)?.str(INVITATION)?.u64(9));
    encoded.unwrap();
    frame
}

/// A frame with its length before it.
pub fn on_first_stream(frame: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).unwrap();
    [&length.to_be_bytes(), frame].concat()
}

#[derive(Debug)]
struct BelievesAnybody;

impl ServerCertVerifier for BelievesAnybody {
    fn verify_server_cert(
        &self,
        _key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for BelievesAnybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
