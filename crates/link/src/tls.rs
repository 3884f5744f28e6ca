//! TLS 1.3 with pinned keys, both ways. Keys travel bare (RFC 7250): a certificate would say
//! nothing that is believed here, and would cost bytes.
//! Holds: the client goes on only if the server proved the key of the address; the server, only
//! if the client proved some key, which it hands to the service to judge.
//! Never: sends a host name, or anything of who the device is, in clear.

use crate::Error;
use crate::keys::{Fingerprint, Identity};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, PeerIncompatible, SignatureScheme,
};
use std::sync::{Arc, Mutex, PoisonError};

const ALPN: &[u8] = b"farfs";
/// The name that TLS wants of every server. It is not sent; the key is what is checked.
pub(crate) const SERVER_NAME: &str = "farfs";
/// Sessions of TLS that a client can take up again: one server's, and one to spare.
const TICKETS_KEPT: usize = 2;

/// The key that a server has shown in place of the pinned one.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherKey(Arc<Mutex<Option<Fingerprint>>>);

impl OtherKey {
    pub(crate) fn take(&self) -> Option<Fingerprint> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, seen: Fingerprint) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }
}

pub(crate) fn client(
    identity: &Identity,
    server: Fingerprint,
    other: OtherKey,
) -> Result<rustls::ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = certified(identity, &provider)?;
    let verifier = Arc::new(PinnedServer { server, other, provider: provider.clone() });
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    // What 0-RTT could save is a round trip after a lost connection, and connections live for
    // days; what it costs is that a stranger can send it again.
    config.enable_early_data = false;
    config.resumption = Resumption::in_memory_sessions(TICKETS_KEPT);
    Ok(config)
}

pub(crate) fn server(identity: &Identity) -> Result<rustls::ServerConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = certified(identity, &provider)?;
    let verifier = Arc::new(AnyProvedClient { provider: provider.clone() });
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.max_early_data_size = 0;
    config.send_tls13_tickets = 1;
    config.ticketer = rustls::crypto::ring::Ticketer::new()?;
    Ok(config)
}

fn certified(identity: &Identity, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
    let private = PrivatePkcs8KeyDer::from(identity.private_key().to_vec());
    let key = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(private))?;
    let public = CertificateDer::from(identity.public_key());
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

/// Bare keys are what TLS 1.3 signs with here; TLS 1.2 is not spoken.
fn no_tls12() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
}

fn verify(
    message: &[u8],
    key: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    provider: &CryptoProvider,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    let algorithms = &provider.signature_verification_algorithms;
    verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
}

#[derive(Debug)]
struct PinnedServer {
    server: Fingerprint,
    other: OtherKey,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen = Fingerprint::of(key);
        if seen == self.server {
            return Ok(ServerCertVerified::assertion());
        }
        self.other.put(seen);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify(message, key, signed, &self.provider)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct AnyProvedClient {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyProvedClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // Which keys are welcome is for the service to say, once the key is proved.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify(message, key, signed, &self.provider)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
