//! What connections are made with, and when it has to be read again.

use std::fmt::{self, Debug, Formatter};

use jiff::{SignedDuration, Timestamp};
use kube::{
    Client, Config,
    client::{AuthError, ConfigExt, middleware::AuthLayer},
    config::AuthInfo,
};
use rustls::ClientConfig;

use crate::explain::with_remedy;

use super::{
    ConnectError,
    source::{Files, Source, changed},
};

/// How long before its end a credential plugin's certificate is asked for again: as kube asks for tokens.
const RENEW: SignedDuration = SignedDuration::from_secs(60);

/// See the module. A credential plugin is run when this is read, which may take long.
pub(super) struct Access {
    pub(super) config: Config,
    pub(super) tls: ClientConfig,
    /// Shared by all connections, so that a token is read, or a plugin run, once for all.
    pub(super) auth: Option<AuthLayer>,
    files: Files,
    /// When a certificate from a credential plugin ends. kube renews a plugin's tokens by itself.
    valid_until: Option<Timestamp>,
}

impl Access {
    pub(super) fn read(source: &Source) -> Result<Self, ConnectError> {
        let (config, files) = source.read()?;
        let (tls, auth) = (config.rustls_client_config()?, config.auth_layer()?);
        let certified = config.auth_info.exec.is_some() && auth.is_none();
        // Nothing but a client of kube's tells it.
        let valid_until = certified.then(|| Client::try_from(config.clone())).transpose()?;
        let valid_until = valid_until.and_then(|client| *client.valid_until());
        Ok(Self { config, tls, auth, files, valid_until })
    }

    /// For connections without a client certificate of this process, on which a request's own credentials count.
    pub(super) fn anonymous_tls(&self) -> kube::Result<ClientConfig> {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        config.rustls_client_config()
    }

    /// Whether it would be another if it was read now, or ends soon.
    pub(super) fn is_outdated(&self) -> bool {
        self.valid_until.is_some_and(|end| Timestamp::now() + RENEW >= end) || changed(&self.files)
    }
}

impl Debug for Access {
    /// Without the credentials.
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Access").field("cluster", &self.config.cluster_url).finish_non_exhaustive()
    }
}

impl From<kube::Error> for ConnectError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Auth(fault) => Self::Credentials(without_output(&fault)),
            other => Self::Credentials(with_remedy(other.to_string())),
        }
    }
}

/// What is wrong with the credentials. What a credential plugin printed may be one: no caller is told. Of its output
/// only the complaints are logged.
pub(super) fn without_output(fault: &AuthError) -> String {
    match fault {
        AuthError::AuthExecRun { out, .. } => {
            let complaints = String::from_utf8_lossy(&out.stderr);
            tracing::warn!(status = %out.status, %complaints, "the kubeconfig's credential plugin failed");
            format!("the credential plugin failed ({})", out.status)
        }
        AuthError::AuthExecParse(_) => "the credential plugin printed no ExecCredential".to_owned(),
        other => other.to_string(),
    }
}
