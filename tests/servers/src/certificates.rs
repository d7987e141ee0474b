//! Certificates for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// The year in which certificates end that are to be good.
const LAST: i32 = 4096;

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
    /// Another certificate for the server's key and the same hosts, whose time is over.
    pub expired: PathBuf,
    /// Another certificate for the server's key, for the host elsewhere.example.
    pub elsewhere: PathBuf,
    /// A certificate for the server's key and its hosts that is an authority of its own.
    pub own: PathBuf,
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

        let signed = |name, hosts: &[&str], key: &KeyPair, purpose, last| {
            let mut parameters = parameters(name, hosts);
            parameters.use_authority_key_identifier_extension = true;
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            parameters.extended_key_usages = vec![purpose];
            parameters.not_after = date_time_ymd(last, 1, 1);
            parameters.signed_by(key, &issuer).expect("an authority signs others").pem()
        };
        let (server_key, client_key) = (key(), key());
        let server =
            |hosts, last| signed("a server", hosts, &server_key, ExtendedKeyUsagePurpose::ServerAuth, last);
        let client = signed("a client", &["client"], &client_key, ExtendedKeyUsagePurpose::ClientAuth, LAST);
        let here: &[&str] = &["127.0.0.1", "::1", "localhost"];
        let mut own = parameters("a server of its own", here);
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = own.self_signed(&server_key).expect("an authority signs itself").pem();

        let file = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).expect("the folder can be written to");
            path
        };
        Self {
            ca: file("ca.pem", certificate),
            server: file("server.pem", server(here, LAST)),
            server_key: file("server-key.pem", server_key.serialize_pem()),
            expired: file("expired.pem", server(here, 2001)),
            elsewhere: file("elsewhere.pem", server(&["elsewhere.example"], LAST)),
            own: file("own.pem", own),
            client: file("client.pem", client),
            client_key: file("client-key.pem", client_key.serialize_pem()),
        }
    }

    /// Which setting of a server or a sentinel names which of the files.
    pub(crate) fn settings(&self) -> [(&'static str, &Path); 5] {
        [
            ("tls-ca-cert-file", &self.ca),
            ("tls-cert-file", &self.server),
            ("tls-key-file", &self.server_key),
            // What it shows to those that it connects to.
            ("tls-client-cert-file", &self.client),
            ("tls-client-key-file", &self.client_key),
        ]
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
