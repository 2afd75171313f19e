//! A certificate that another program keeps, in files, and whose authority another one writes into the configurations:
//! the test does what cert-manager and its injector do.

use std::{fs, path::Path};

use k8s_openapi::{ByteString, api::admissionregistration::v1::MutatingWebhookConfiguration};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use ringside_e2e::{
    eventually::eventually,
    process::Folder,
    system::{KeptCertificate, Settings},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::json;

use crate::webhook::{
    calls::failed_open,
    fixture::{DEADLINE, Fixture},
    trust::{self, configuration, shown_by_all},
};

const CERTIFICATE: &str = "ringside-system/sharder-webhook";
/// What the API server calls the webhook by.
const NAMES: [&str; 2] = ["ringside-sharder.ringside-system.svc", "127.0.0.1"];

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "somebody else");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Makes a certificate, and writes it where the kubelet shows the Secret: file by file, so that for a moment they don't fit.
fn issue(authority: &Authority, folder: &Path) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(NAMES.map(str::to_owned)).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, authority).unwrap().pem();
    for (file, text) in [("tls.crt", &certificate), ("tls.key", &key.serialize_pem())] {
        let (there, new) = (folder.join(file), folder.join(format!(".{file}")));
        fs::write(&new, text).unwrap();
        fs::rename(&new, &there).unwrap();
    }
    CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()
}

/// What the injector does with the configurations that name the Certificate: the ring's, and that of the probes.
async fn inject(fixture: &Fixture, authority: &Authority) {
    let api: Api<MutatingWebhookConfiguration> = Api::all(fixture.client());
    for name in [fixture.ring.made_for(), "ringside-sharder-probe".to_owned()] {
        let mut injected = api.get(&name).await.unwrap();
        for webhook in injected.webhooks.iter_mut().flatten() {
            webhook.client_config.ca_bundle = Some(ByteString(authority.pem().into_bytes()));
        }
        let webhooks = json!({"webhooks": injected.webhooks});
        let by_injector =
            PatchParams { field_manager: Some("cert-manager-cainjector".to_owned()), ..PatchParams::default() };
        api.patch(&name, &by_injector, &Patch::Merge(webhooks)).await.unwrap();
    }
}

pub(crate) async fn a_certificate_that_somebody_else_keeps_is_shown_and_exchanged_and_what_is_injected_stays() {
    let (folder, authority) = (Folder::create("certificate").unwrap(), authority());
    let first = issue(&authority, folder.path());
    let kept = KeptCertificate { folder: folder.path().to_owned(), name: CERTIFICATE.to_owned() };
    let fixture = Fixture::begin(Settings { kept_certificate: Some(kept), ..Settings::default() }).await;
    let client = fixture.client();

    // Until the injector has been there, the API server trusts no webhook; objects have owners all the same.
    let made = configuration(&fixture).await;
    assert_eq!(made.metadata.annotations.as_ref().unwrap()["cert-manager.io/inject-ca-from"], CERTIFICATE);
    assert_eq!(trust::bundle(&made), None);
    assert!(!fixture.is_labelled(&fixture.create().await));
    fixture.until_assigned().await;
    inject(&fixture, &authority).await;
    fixture.until_answered().await;
    assert!(shown_by_all(&fixture).await.iter().all(|shown| *shown == first));
    let injected = configuration(&fixture).await;

    // It is exchanged while objects are created, and no call fails.
    let before = failed_open(&client).await;
    let second = issue(&authority, folder.path());
    eventually("all replicas show the new certificate", DEADLINE, || async {
        assert!(fixture.is_labelled(&fixture.create().await), "the webhook was not asked");
        let shown = shown_by_all(&fixture).await;
        assert!(shown.iter().all(|one| [&first, &second].contains(&one)));
        if shown.contains(&first) { Err("some show the first".to_owned()) } else { Ok(()) }
    })
    .await
    .unwrap();
    assert!(fixture.is_labelled(&fixture.create().await));
    assert_eq!(failed_open(&client).await, before);

    // The sharder sees what was injected, and leaves it.
    assert_eq!(configuration(&fixture).await.metadata.generation, injected.metadata.generation, "none wrote to it");
}
