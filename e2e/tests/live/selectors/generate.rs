//! Selectors, queries and paths: valid, nearly valid and hostile.

use std::fmt::Write as _;

use http::Method;
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, Select, select},
};

use super::sides::{NAMESPACES, SHARD};

/// What makes an API server send the state and then an event that says so.
pub(crate) const WATCH: &str =
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=30";

const RING_SHARD: &str = "shard.alpha.sharding.timebertt.dev/clusterring-";

/// One of the words between the bars, where twice the same is twice as likely.
fn one_of(words: &'static str) -> Select<&'static str> {
    select(words.split('|').collect::<Vec<_>>())
}

/// A label selector before percent-encoding.
pub(crate) fn selector(shard_key: String) -> impl Strategy<Value = String> {
    let valid = vec(requirement(shard_key), 0..4).prop_map(|parts| parts.join(",")).boxed();
    let bent = (valid.clone(), any::<Index>(), odd()).prop_map(|(text, at, odd)| insert(&text, at, &odd)).boxed();
    let bent_twice = (bent.clone(), any::<Index>(), odd()).prop_map(|(text, at, odd)| insert(&text, at, &odd));
    let tokens = vec(one_of(TOKENS), 0..9).prop_map(|tokens| tokens.concat());
    prop_oneof![5 => valid, 4 => bent, 1 => bent_twice, 2 => tokens, 1 => "\\PC{0,12}"]
}

const TOKENS: &str = "app|tier|a|1|in|notin|(|)|,|,|=|==|!=|!|>|<| |\t|\n|\0|example.com/role|(a,b)|()|x.Y_z-1";

fn requirement(shard_key: String) -> impl Strategy<Value = String> {
    let keys = ["app", "tier", "number", "example.com/role", "absent", "in", "notin"].map(str::to_owned);
    let long = [format!("{RING_SHARD}x"), "a".repeat(63), format!("{}/x", "b.".repeat(126) + "b")];
    let drain_key = shard_key.replacen("shard", "drain", 1);
    let keys = select([&keys[..], &long, &[shard_key, drain_key]].concat());
    let values = ["a", "b", "", "1", "7", "007", "12", "x", "r.0-X_y", SHARD, "shard-1", "in", "notin"];
    let value = || select(values.to_vec());
    let space = || select(vec!["", "", "", " ", "\t", "\r\n", "  "]);
    let set = (vec(value(), 0..4), space()).prop_map(|(values, space)| format!("({space}{}{space})", values.join(",")));
    let exact =
        (select(vec!["=", "==", "!=", ">", "<"]), space(), value()).prop_map(|(op, s, v)| format!("{op}{s}{v}"));
    let of_set = (select(vec![" in ", " notin ", " in", "\tnotin\n"]), set).prop_map(|(op, set)| format!("{op}{set}"));
    let condition = prop_oneof![4 => exact, 3 => of_set, 1 => Just(String::new())];
    let positive = (space(), keys.clone(), space(), condition, space());
    let positive = positive.prop_map(|(a, key, b, condition, c)| format!("{a}{key}{b}{condition}{c}"));
    let negative = (space(), keys).prop_map(|(space, key)| format!("!{space}{key}"));
    prop_oneof![5 => positive, 1 => negative]
}

/// What does not belong there, mostly.
fn odd() -> impl Strategy<Value = String> {
    select(ODD.split('|').map(str::to_owned).chain(["|".to_owned(), "y".repeat(64)]).collect::<Vec<_>>())
}

const ODD: &str = "\0|\0\0|(|)|,|!|=|>|<|\"|'|;|&|+|%|%00|\u{e4}|\u{a0}|\u{2028}|\u{b}|\u{7f}|-|_|.|/|\\|#|?|*|\
    9223372036854775808|-1|+1|in| notin ";

fn insert(text: &str, at: Index, odd: &str) -> String {
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let (before, behind) = text.split_at(places[at.index(places.len())]);
    format!("{before}{odd}{behind}")
}

/// The text in a query, encoded one way or another.
pub(crate) fn encoded(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (text, vec(0..4_u8, 1..6)).prop_map(|(text, ways)| {
        let mut encoded = String::new();
        for (byte, way) in text.bytes().zip(ways.into_iter().cycle()) {
            let plain = byte.is_ascii_alphanumeric() || b"-._~!$'()*,:@/?=".contains(&byte);
            // Writing to a String can't fail.
            let _ = match way {
                _ if byte == b' ' && way < 2 => write!(encoded, "+"),
                0 | 1 if plain => write!(encoded, "{}", char::from(byte)),
                2 => write!(encoded, "%{byte:02x}"),
                _ => write!(encoded, "%{byte:02X}"),
            };
        }
        encoded
    })
}

/// Pairs of a query among which selectors may be several, or spelled oddly.
pub(crate) fn query(shard_key: String) -> impl Strategy<Value = String> {
    let key = one_of(KEYS);
    let selects = (key, encoded(selector(shard_key))).prop_map(|(key, value)| format!("{key}={value}"));
    let other = one_of(OTHER).prop_map(str::to_owned);
    vec(prop_oneof![2 => selects, 3 => other], 0..5).prop_map(|pairs| pairs.join("&"))
}

const KEYS: &str = "labelSelector|labelSelector|label%53elector|%6CabelSelector|labelselector|LabelSelector|\
    labelSelector[]|+labelSelector|labelSelector%00|labelSelector;";

const OTHER: &str = "limit=3|limit=7|limit=0|limit=-1|limit=abc|limit=|resourceVersion=0|resourceVersion=abc|\
    resourceVersion=|watch=0|watch=false|watch=FALSE|watch=%30|fieldSelector=metadata.name%3Dobject-4|\
    fieldSelector=metadata.name!%3Dobject-4|fieldSelector=nope%3D1|fieldSelector=%ff|pretty=true|a;b|\
    a=1;labelSelector=app|%zz=1|labelSelector=%zz|labelSelector=%|labelSelector=app%f|labelSelector=%ff|\
    labelSelector=app%c0%80|=|=x||labelSelector|labelSelector==|timeoutSeconds=5|sendInitialEvents=true|\
    sendInitialEvents|resourceVersionMatch=Exact|continue=x|allowWatchBookmarks=x|\
    shardSelector=x|timeout=1s|dryRun=All|namespace=other";

const FLAGS: &str = "watch=1|watch=true|watch|watch=|watch=0|watch=false|w%61tch=1|watch=T|Watch=1|watch=%30|watch=%zz|\
    watch=1;x|watch=0;";

/// What decides between a list and a watch.
pub(crate) fn watch_flags() -> impl Strategy<Value = String> {
    vec(one_of(FLAGS), 1..3).prop_map(|flags| flags.join("&"))
}

/// Methods that change nothing without a body.
pub(crate) fn method() -> impl Strategy<Value = Method> {
    let method = one_of("GET|GET|GET|GET|GET|GET|GET|GET|GET|GET|GET|GET|HEAD|OPTIONS|POST|PUT|PATCH|get|PURGE");
    method.prop_map(|method| method.parse().unwrap())
}

/// Paths to the ring's resources, and to what looks like it.
pub(crate) fn path() -> impl Strategy<Value = String> {
    let api = select(vec![("/api/v1", "configmaps"), ("/apis/web.example.com/v1", "websites")]);
    let good = (api, one_of(LIKELY)).prop_map(|((api, resource), path)| {
        let path = format!("{api}/{}", path.replace("{}", resource));
        path.split('/').map(str::to_owned).collect::<Vec<_>>()
    });
    let good = good.boxed();
    let bent = bend(good.clone()).boxed();
    let random = (one_of(STARTS), vec(one_of(PARTS), 0..6))
        .prop_map(|(start, parts)| [start].into_iter().chain(parts).map(str::to_owned).collect::<Vec<_>>());
    let parts = prop_oneof![8 => good, 5 => bent.clone(), 2 => bend(bent), 1 => random];
    let end = one_of("|||||||||/|//|%2F|/.|?|%");
    (parts, end).prop_map(|(parts, end)| format!("{}{end}", parts.join("/")))
}

const STARTS: &str = "//api/v1|/api//v1|/apis/v1|/api|/apis|/API/v1|/apis/Web.example.com/v1|/api/v2|/%61pi/v1|\
    /apis/web.example.com|/apis//v1|/api%2Fv1|/./api/v1|/x/../api/v1||/apis/web.example.com/v1beta1";

const PARTS: &str = "configmaps|websites|configmaps|websites|namespaces|namespaces|default|other|object-0|object-1|watch|\
    proxy|status|finalize|scale|||.|..|%2e|%2E%2E|%2F|c%6fnfigmaps|websites%2Fobject-0|Websites|website|\
    default%20|%00|%ff|nodes|serviceaccounts|object-0;x|object-0,x|~|*|$|a:b";

/// By name the shard's own objects: what else is read or written by name is a matter of the fence.
const LIKELY: &str = "{}|{}|namespaces/default/{}|namespaces/other/{}|namespaces/other/{}/object-1|\
    namespaces/default/{}/object-0|namespaces/default/{}/object-0/status|namespaces/default|namespaces|watch/{}|\
    watch/namespaces/default/{}|watch/namespaces/other/{}|watch/namespaces/default/{}/object-4|\
    watch/namespaces/default/{}/object-8|proxy/namespaces/default/{}|namespaces/status/{}|watch|watch/watch/{}";

/// A path with a segment put in, or in the place of another one.
fn bend(path: impl Strategy<Value = Vec<String>>) -> impl Strategy<Value = Vec<String>> {
    (path, one_of(PARTS), any::<Index>(), any::<bool>()).prop_map(|(mut path, part, at, replace)| {
        // The first one is empty, before the first slash.
        let at = 1 + at.index(path.len() - 1);
        if replace {
            part.clone_into(&mut path[at]);
        } else {
            path.insert(at, part.to_owned());
        }
        path
    })
}

/// One of the ring's collections.
pub(crate) fn collection() -> impl Strategy<Value = &'static str> {
    select(vec![
        "/api/v1/configmaps",
        "/api/v1/namespaces/default/configmaps",
        "/apis/web.example.com/v1/websites",
        "/apis/web.example.com/v1/namespaces/other/websites",
    ])
}

/// One of the ring's collections in one namespace.
pub(crate) fn namespaced_collection() -> impl Strategy<Value = String> {
    let resource = select(vec!["/api/v1/namespaces/{}/configmaps", "/apis/web.example.com/v1/namespaces/{}/websites"]);
    (resource, select(NAMESPACES.to_vec())).prop_map(|(path, namespace)| path.replace("{}", namespace))
}
