//! Certificates for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// An authority of one's own and what it has signed, as files in PEM.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Certificates {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The server's certificate, for 127.0.0.1, ::1 and localhost.
    pub server: PathBuf,
    /// The server's key.
    pub server_key: PathBuf,
    /// A client's certificate.
    pub client: PathBuf,
    /// The client's key.
    pub client_key: PathBuf,
}

impl Certificates {
    /// Makes them, with keys that nobody else has.
    ///
    /// # Panics
    ///
    /// If the folder can't be written to.
    pub fn within(folder: &Path) -> Self {
        let ca_key = key();
        let mut ca = parameters("an authority for tests", &[]);
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = ca.self_signed(&ca_key).expect("an authority signs itself").pem();
        let issuer = Issuer::new(ca, ca_key);

        let signed = |name, hosts: &[&str], purpose| {
            let mut parameters = parameters(name, hosts);
            parameters.use_authority_key_identifier_extension = true;
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            parameters.extended_key_usages = vec![purpose];
            let key = key();
            let certificate = parameters.signed_by(&key, &issuer).expect("an authority signs others");
            (certificate.pem(), key.serialize_pem())
        };
        let hosts = ["127.0.0.1", "::1", "localhost"];
        let (server, server_key) = signed("a server", &hosts, ExtendedKeyUsagePurpose::ServerAuth);
        let (client, client_key) = signed("a client", &["client"], ExtendedKeyUsagePurpose::ClientAuth);

        let file = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).expect("the folder can be written to");
            path
        };
        Self {
            ca: file("ca.pem", certificate),
            server: file("server.pem", server),
            server_key: file("server-key.pem", server_key),
            client: file("client.pem", client),
            client_key: file("client-key.pem", client_key),
        }
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system gives random numbers")
}

fn parameters(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut parameters = CertificateParams::new(hosts).expect("names and addresses");
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}
