//! Each parser keeps its promises on the corpus of its fuzz target, and on changes of it.

#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
#[path = "../../fuzz/src/proxy/mod.rs"]
mod bodies;
#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
#[path = "../../fuzz/src/replay.rs"]
mod replay;

macro_rules! replays {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                replay::replay(stringify!($name), bodies::$name::run);
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            // The sharder replays its own.
            let mut replayed = vec!["inject", "review", $(stringify!($name)),*];
            replayed.sort_unstable();
            let targets = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/targets")).expect("a folder");
            let stem = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned);
            let mut targets: Vec<_> = targets.filter_map(stem).collect();
            targets.sort_unstable();
            assert_eq!(replayed, targets);
        }
    };
}

replays! { accept election frames_json frames_protobuf frames_websocket labels ownership path query selector }
