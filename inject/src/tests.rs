#![allow(clippy::unwrap_used)]

use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{select, subsequence},
};

use super::*;

fn injection() -> Injection {
    Injection {
        ring: "websites".parse().unwrap(),
        image: "ringside-proxy:0.1.0".to_owned(),
        containers: Vec::new(),
        options: Vec::new(),
        ports: None,
        metrics: true,
        sidecar: Sidecar::Native,
        resources: Resources::default(),
    }
}

fn deployment(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "c"},
        "spec": {"replicas": 1, "template": {"metadata": {"labels": {"app": "c"}}, "spec": spec}}})
}

fn one(container: Value) -> Value {
    let mut container = container;
    container["name"] = "manager".into();
    deployment(&json!({"containers": [container]}))
}

fn injected(object: &Value, injection: &Injection) -> Value {
    let mut object = object.clone();
    inject(&mut object, injection).unwrap();
    object
}

fn spec(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]
}

fn env<'a>(object: &'a Value, name: &str) -> &'a Value {
    let env = spec(object)["containers"][0]["env"].as_array().unwrap();
    env.iter().find(|entry| entry["name"] == name).map_or(&Value::Null, |entry| &entry["value"])
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn injected_container_is_that_of_the_example() {
    let example = yaml(include_str!("../../deploy/example/deployment.yaml"));
    let mut bare = example.clone();
    let pod = bare["spec"]["template"]["spec"].as_object_mut().unwrap();
    pod.remove("initContainers");
    pod.remove("volumes");
    let controller = pod["containers"][0].as_object_mut().unwrap();
    controller.remove("env");
    controller.remove("volumeMounts");
    let made = injected(&bare, &injection());
    let mut wanted = spec(&example).clone();
    // The example leaves to the pod what the container says itself, as not each pod does.
    let context = &mut wanted["initContainers"][0]["securityContext"];
    context["runAsNonRoot"] = true.into();
    context["seccompProfile"] = json!({"type": "RuntimeDefault"});
    assert_eq!(spec(&made), &wanted);
}

#[test]
fn same_injection_changes_nothing_and_another_updates() {
    let object = one(json!({"env": [{"name": "KUBECONFIG", "value": "/mine"}]}));
    let first = injected(&object, &injection());
    assert_eq!(injected(&first, &injection()), first);
    let other =
        Injection { ring: "others".parse().unwrap(), options: vec!["--drain-grace=9s".to_owned()], ..injection() };
    let second = injected(&first, &other);
    assert_eq!(spec(&second)["initContainers"][0]["args"], json!(["--ring=others", "--drain-grace=9s"]));
    assert_eq!(second, injected(&object, &other));
    let mut back = second;
    uninject(&mut back).unwrap();
    assert_eq!(back, object);
}

#[test]
fn older_server_gets_a_plain_container() {
    for (minor, sidecar) in
        [("28", Sidecar::Plain), ("28+", Sidecar::Plain), ("29", Sidecar::Native), ("33+", Sidecar::Native)]
    {
        assert_eq!(Sidecar::for_server("1", minor), sidecar, "{minor}");
    }
    assert_eq!(Sidecar::for_server("2", "0"), Sidecar::Native);
    let made = injected(&one(json!({})), &Injection { sidecar: Sidecar::Plain, ..injection() });
    let pod = spec(&made);
    assert_eq!((pod.get("initContainers"), &pod["containers"][1]["name"]), (None, &json!(CONTAINER)));
    assert_eq!(pod["containers"][1].get("restartPolicy"), None);
}

#[test]
fn host_network_gets_ports_of_its_own_that_the_scheduler_sees() {
    let object = deployment(&json!({"hostNetwork": true, "containers": [{"name": "manager"}]}));
    let made = injected(&object, &injection());
    let port: u16 = env(&made, "KUBERNETES_SERVICE_PORT").as_str().unwrap().parse().unwrap();
    assert!((20_000..30_000).contains(&port), "{port}");
    let proxy = &spec(&made)["initContainers"][0];
    assert_eq!(proxy["args"][1], format!("--listen=127.0.0.1:{port}"));
    assert_eq!(proxy["env"][1]["value"], format!("[::]:{}", port + 1));
    let host_ports: Vec<_> = proxy["ports"].as_array().unwrap().iter().map(|port| port["hostPort"].clone()).collect();
    assert_eq!(host_ports, [port + 1, port]);
    let ports = Some(Ports { listen: 7001, admin: 7002 });
    let named = injected(&object, &Injection { ports, metrics: false, ..injection() });
    assert_eq!(env(&named, "KUBERNETES_SERVICE_PORT"), "7001");
    assert_eq!(spec(&named)["initContainers"][0]["env"][1]["value"], "127.0.0.1:7002");
}

/// A kubelet ends each container after its own hook. It asks a controller's from outside of the pod.
#[test]
fn a_pod_that_ends_hands_over_first_in_the_time_that_it_has() {
    let hooks = |spec: Value, injection: &Injection| {
        let made = injected(&deployment(&spec), injection);
        let of = |list: &str| self::spec(&made)[list][0]["lifecycle"]["preStop"].clone();
        (of("initContainers")["exec"]["command"][2].clone(), of("containers"))
    };
    let left = json!({"httpGet": {"path": "/left", "port": 6444}});
    let with = |period: u64| json!({"terminationGracePeriodSeconds": period, "containers": [{"name": "manager"}]});
    assert_eq!(hooks(with(30), &injection()), ("--within=20s".into(), left.clone()));
    assert_eq!(hooks(with(300), &injection()), ("--within=290s".into(), left));
    assert_eq!(hooks(with(10), &injection()), (Value::Null, Value::Null), "no time is left");
    let notes = |spec: &Value, injection: &Injection| inject(&mut deployment(spec), injection).unwrap().notes;
    assert!(notes(&with(10), &injection())[0].starts_with("terminationGracePeriodSeconds leaves no time"));
    let inside = Injection { metrics: false, ..injection() };
    assert_eq!(hooks(with(30), &inside), (Value::Null, Value::Null));
    assert!(notes(&with(30), &inside)[0].starts_with("without metrics"));

    let own = json!({"exec": {"command": ["/drain"]}});
    let mut object = one(json!({"lifecycle": {"preStop": own}}));
    let notes = inject(&mut object, &injection()).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].starts_with("manager: keeps its own preStop hook"), "{notes:?}");
    assert_eq!(spec(&object)["containers"][0]["lifecycle"]["preStop"], own);
}

#[test]
fn loopback_is_named_where_requests_would_go_elsewhere() {
    let proxied = |no_proxy: Value| {
        let env = [json!({"name": "https_proxy", "value": "http://p:3128"}), no_proxy];
        one(json!({"env": env}))
    };
    for (name, before, after) in [
        ("NO_PROXY", ".svc", ".svc,127.0.0.1,localhost"),
        ("no_proxy", "", "127.0.0.1,localhost"),
        ("no_proxy", "127.0.0.1", "127.0.0.1"),
        ("OTHER", "x", "x"),
    ] {
        let object = proxied(json!({"name": name, "value": before}));
        let made = injected(&object, &injection());
        assert_eq!(env(&made, name), after);
        if name == "OTHER" {
            assert_eq!(env(&made, "NO_PROXY"), "127.0.0.1,localhost");
        }
        let mut back = made;
        uninject(&mut back).unwrap();
        assert_eq!(back, object);
    }
    assert_eq!(env(&injected(&one(json!({})), &injection()), "NO_PROXY"), &Value::Null);
    let mut elsewhere =
        proxied(json!({"name": "NO_PROXY", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}));
    let notes = inject(&mut elsewhere, &injection()).unwrap().notes;
    assert!(notes[0].contains("NO_PROXY comes from elsewhere"), "{notes:?}");
}

#[test]
fn variables_come_before_those_that_refer_to_them() {
    let object = one(json!({"env": [{"name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST)"}]}));
    let made = injected(&object, &injection());
    let env = spec(&made)["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env.last().unwrap()["name"], "URL");
}

#[test]
fn only_named_containers_are_led_to_the_proxy() {
    let object = deployment(&json!({"containers": [{"name": "manager"}, {"name": "other", "volumeMounts": []}]}));
    let made = injected(&object, &Injection { containers: vec!["manager".to_owned()], ..injection() });
    assert_eq!(spec(&made)["containers"][1], json!({"name": "other", "volumeMounts": []}));
    assert_eq!(spec(&injected(&object, &injection()))["containers"][1]["env"][0]["name"], "KUBECONFIG");
    let mut back = made;
    uninject(&mut back).unwrap();
    assert_eq!(back, object);
}

#[test]
fn root_pod_has_a_proxy_as_root() {
    let pod =
        |user: u32| deployment(&json!({"securityContext": {"runAsUser": user}, "containers": [{"name": "manager"}]}));
    let context = |user| spec(&injected(&pod(user), &injection()))["initContainers"][0]["securityContext"].clone();
    assert_eq!((context(0).get("runAsNonRoot"), &context(1000)["runAsNonRoot"]), (None, &json!(true)));
    assert_eq!(context(1000).get("runAsUser"), None);
}

fn mounts(container: &Value) -> Vec<(String, String)> {
    let text = |mount: &Value, key: &str| mount[key].as_str().unwrap().to_owned();
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    mounts.map(|mount| (text(mount, "name"), text(mount, "mountPath"))).collect()
}

#[test]
fn pod_at_its_creation_shows_the_controller_no_token() {
    let token = json!({"name": "kube-api-access-x7", "mountPath": TOKEN_FOLDER, "readOnly": true});
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "c-"}, "spec": {
        "containers": [{"name": "manager", "volumeMounts": [token]}], "volumes": [{"name": "kube-api-access-x7"}]}});
    let mut template = deployment(&pod["spec"]);
    inject(&mut pod, &injection()).unwrap();
    let named = |container| mounts(container).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(named(&pod["spec"]["containers"][0]), [TOKEN_VOLUME, VOLUME, VOLUME]);
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"], "namespace", "it shows no token");
    assert_eq!(mounts(&pod["spec"]["initContainers"][0])[1], (TOKEN_VOLUME.to_owned(), TOKEN_FOLDER.to_owned()));
    // In a template it was written by hand, and nothing says that it is a token.
    assert!(matches!(inject(&mut template, &injection()), Err(Refusal::FolderTaken { .. })));
}

/// Vault's injector takes the volume of the first mount in a container with `serviceaccount` in its path.
#[test]
fn first_mount_that_names_a_service_account_is_of_the_pods_token() {
    let made = injected(&one(json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]})), &injection());
    let mounts = mounts(&spec(&made)["containers"][0]);
    let first = mounts.iter().find(|(_, path)| path.contains("serviceaccount")).unwrap();
    assert_eq!(first.0, TOKEN_VOLUME);
    let volume = spec(&made)["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == TOKEN_VOLUME);
    assert_eq!(volume.unwrap()["projected"]["sources"][0]["serviceAccountToken"]["path"], "token");
}

#[test]
fn token_that_is_mounted_by_hand_gives_way_and_comes_back() {
    let source = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 7200}});
    let with = |source: &Value| {
        let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
        let mounts = [mount("a", "/a"), mount("tok", "/run/secrets/kubernetes.io/serviceaccount"), mount("b", "/b")];
        deployment(&json!({"automountServiceAccountToken": false,
            "containers": [{"name": "manager", "volumeMounts": mounts}],
            "volumes": [{"name": "tok", "projected": {"sources": [source]}}]}))
    };
    let made = injected(&with(&source), &injection());
    let names: Vec<_> = mounts(&spec(&made)["containers"][0]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b", TOKEN_VOLUME, VOLUME, VOLUME]);
    let mut back = made;
    uninject(&mut back).unwrap();
    assert_eq!(back, with(&source));
    let for_others = json!({"serviceAccountToken": {"path": "token", "audience": "vault"}});
    assert!(matches!(inject(&mut with(&for_others), &injection()), Err(Refusal::FolderTaken { .. })));
}

#[test]
fn containers_of_other_injectors_are_left_alone_unless_they_are_named() {
    let object = deployment(&json!({"containers": [{"name": "manager"}, {"name": "kuma-sidecar"}]}));
    assert_eq!(spec(&injected(&object, &injection()))["containers"][1], json!({"name": "kuma-sidecar"}));
    let named = Injection { containers: vec!["kuma-sidecar".to_owned()], ..injection() };
    assert!(spec(&injected(&object, &named))["containers"][1].get("env").is_some());
}

#[test]
fn pod_with_resources_of_its_own_keeps_to_them() {
    let own = deployment(&json!({"resources": {"limits": {"memory": "200Mi"}}, "containers": [{"name": "manager"}]}));
    assert_eq!(spec(&injected(&own, &injection()))["initContainers"][0].get("resources"), None);
    let made = injected(&one(json!({})), &injection());
    assert_eq!(spec(&made)["initContainers"][0]["resources"]["limits"], json!({"memory": "128Mi"}));
}

#[test]
fn what_can_not_be_injected_is_refused_and_stays_as_it_is() {
    let mounted = |path: &str| one(json!({"volumeMounts": [{"name": "tokens", "mountPath": path}]}));
    let named = Injection { containers: vec!["controller".to_owned()], ..injection() };
    let twice = one(json!({"env": [{"name": "KUBECONFIG", "value": "a"}, {"name": "KUBECONFIG", "value": "b"}]}));
    for (object, injection, told) in [
        (json!({"apiVersion": "v1", "kind": "Service"}), injection(), "Service is none of Deployment"),
        (deployment(&json!({"containers": []})), injection(), "no containers"),
        (deployment(&json!({"containers": {"name": "a"}})), injection(), "'containers' is missing, or not"),
        (json!({"apiVersion": "apps/v1", "kind": "Deployment"}), injection(), "'spec.template' is missing"),
        (one(json!({})), named, "no container 'controller': name one of manager"),
        (yaml(include_str!("../../deploy/example/deployment.yaml")), injection(), "not added by `ringside inject`"),
        (mounted("/var/run/secrets/kubernetes.io/serviceaccount/"), injection(), "mounts volume 'tokens' at /var/run"),
        (mounted("/run/secrets/kubernetes.io/serviceaccount/token"), injection(), "find the proxy's token"),
        (mounted("/var/run/ringside"), injection(), "container 'manager' mounts volume 'tokens'"),
        (twice, injection(), "the variable KUBECONFIG twice"),
        (
            deployment(&json!({"volumes": [{"name": "ringside"}], "containers": [{"name": "manager"}]})),
            injection(),
            "a volume 'ringside' of its own",
        ),
    ] {
        let mut after = object.clone();
        let refusal = inject(&mut after, &injection).unwrap_err().to_string();
        assert!(refusal.contains(told), "{refusal}");
        assert_eq!(after, object);
        assert!(uninject(&mut after).is_err());
    }
    let beside = mounted("/var/run/secrets/kubernetes.io/serviceaccount-of-another");
    assert!(is_injected(&injected(&beside, &injection())));
}

#[test]
fn changes_are_told_a_line_each() {
    let mut object = one(json!({"env": [{"name": "KUBECONFIG", "value": "/mine"}]}));
    let lines = |changes: Vec<Change>| changes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let told = lines(inject(&mut object, &injection()).unwrap().changes);
    assert_eq!(
        told,
        [
            "+ initContainers[0] ringside-proxy",
            "+ manager: /var/run/ringside and /var/run/secrets/kubernetes.io/serviceaccount",
            "~ manager: env KUBECONFIG",
            "+ manager: env KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT",
            "+ manager: a preStop hook, which waits until its objects are handed over",
            "+ volumes ringside and ringside-token",
        ]
    );
    let told = lines(uninject(&mut object).unwrap());
    assert_eq!(
        (told.len(), &*told[0], &*told[3]),
        (7, "- initContainers ringside-proxy", "- manager: env KUBERNETES_SERVICE_HOST")
    );
}

/// A value that may be missing, null, empty or filled.
fn sparse(filled: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![Just(None), Just(Some(Value::Null)), Just(Some(json!([]))), filled.prop_map(Some)]
}

fn variables() -> impl Strategy<Value = Value> {
    let names = [
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_SERVICE_PORT",
        "HTTPS_PROXY",
        "NO_PROXY",
        "no_proxy",
        "A",
    ];
    let value = prop_oneof![
        "[a-z.,]{0,8}".prop_map(|value| json!({"value": value})),
        Just(json!({"value": "127.0.0.1,localhost"})),
        Just(json!({"valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})),
        Just(json!({})),
    ];
    (subsequence(names.to_vec(), 0..=names.len()).prop_shuffle(), vec(value, names.len())).prop_map(
        |(names, values)| {
            let entry = |(name, mut value): (&str, Value)| {
                value["name"] = name.into();
                value
            };
            names.into_iter().zip(values).map(entry).collect()
        },
    )
}

/// Mounts, one of which may be of the pod's token.
fn mounted() -> impl Strategy<Value = Value> {
    let mounts = [
        json!({"name": "data", "mountPath": "/data"}),
        json!({"name": "token", "mountPath": TOKEN_FOLDER}),
        json!({"name": "data", "mountPath": "/more"}),
    ];
    subsequence(mounts.to_vec(), 1..=mounts.len()).prop_map(Value::from)
}

/// Hooks, of which one may be the one that is added.
fn hooks() -> impl Strategy<Value = Value> {
    let hooks = [
        json!({"preStop": null}),
        json!({"preStop": {}}),
        json!({"preStop": {"sleep": {"seconds": 3}}}),
        json!({"postStart": {"exec": {"command": ["true"]}}}),
    ];
    select(hooks.to_vec())
}

prop_compose! {
    fn container(name: &'static str)(
        env in sparse(variables()),
        mounts in sparse(mounted()),
        hooks in option::of(prop_oneof![hooks(), Just(Value::Null), Just(json!({}))]),
    ) -> Value {
        let mut container = json!({"name": name, "image": "i"});
        hooks.into_iter().for_each(|hooks| container["lifecycle"] = hooks);
        env.into_iter().for_each(|env| container["env"] = env);
        mounts.into_iter().for_each(|mounts| container["volumeMounts"] = mounts);
        container
    }
}

prop_compose! {
    fn template()(
        (manager, other) in (container("manager"), option::of(container("other"))),
        inits in sparse(Just(json!([{"name": "first"}]))),
        volumes in sparse(Just(json!([{"name": "data", "emptyDir": {}}]))),
        annotations in option::of(prop_oneof![Just(Value::Null), Just(json!({})), Just(json!({"a": "b"}))]),
        metadata in option::of(prop_oneof![Just(Value::Null), Just(json!({})), Just(json!({"labels": {"a": "b"}}))]),
        on_node in option::of(any::<bool>()),
        period in option::of(0..60_u8),
    ) -> Value {
        let mut spec = json!({"containers": [manager]});
        other.into_iter().for_each(|other| spec["containers"].as_array_mut().unwrap().push(other));
        inits.into_iter().for_each(|inits| spec["initContainers"] = inits);
        volumes.into_iter().for_each(|volumes| spec["volumes"] = volumes);
        if spec["containers"].to_string().contains(TOKEN_FOLDER) {
            let token = json!({"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}});
            match spec["volumes"].as_array_mut() {
                Some(volumes) => volumes.push(token),
                None => spec["volumes"] = json!([token]),
            }
        }
        on_node.into_iter().for_each(|on_node| spec["hostNetwork"] = on_node.into());
        period.into_iter().for_each(|period| spec["terminationGracePeriodSeconds"] = period.into());
        let mut template = json!({"spec": spec});
        metadata.into_iter().for_each(|metadata| template["metadata"] = metadata);
        annotations.into_iter().for_each(|annotations| template["metadata"]["annotations"] = annotations);
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": template}})
    }
}

prop_compose! {
    fn some_injection()(named in any::<bool>(), metrics in any::<bool>(), is_native in any::<bool>()) -> Injection {
        let containers = if named { vec!["manager".to_owned()] } else { Vec::new() };
        let sidecar = if is_native { Sidecar::Native } else { Sidecar::Plain };
        Injection { containers, metrics, sidecar, ..injection() }
    }
}

proptest! {
    #[test]
    fn uninject_gives_back_what_was_there(object in template(), first in some_injection(), second in some_injection()) {
        let once = injected(&object, &first);
        prop_assert!(once != object && is_injected(&once));
        prop_assert_eq!(&injected(&once, &first), &once);
        for mut last in [once.clone(), injected(&once, &second)] {
            uninject(&mut last).unwrap();
            prop_assert_eq!(&last, &object);
        }
    }
}
