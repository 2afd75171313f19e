//! Lists in pages.

use http::StatusCode;
use ringside_e2e::eventually::eventually;
use serde_json::Value;

use crate::handover::fixture::{Fixture, SECRETS, SOON, World};

/// As many pages, of one object each.
const PAGES: usize = 12;
/// So many of them have to be answered while the drain is under way, for the test to show anything.
const LEAST: usize = 3;

fn rest(page: &Value) -> String {
    page["metadata"]["continue"].as_str().expect("there are more pages").to_owned()
}

/// While pages come, an object that is drained after the list began is not let go: it may be in any of them. Once the
/// client was idle for long enough, it is, and then the list has to begin anew.
pub(crate) async fn a_list_in_pages_and_a_move_do_not_miss_each_other(world: &World) {
    let fixture = &world.shard("lists").await;
    for number in 0..PAGES {
        fixture.create(&format!("page-{number:02}")).await;
    }
    let last = format!("page-{:02}", PAGES - 1);
    let page = async |token: &str| fixture.list(&format!("{SECRETS}?limit=1&continue={token}")).await;
    let (_, first) = fixture.list(&format!("{SECRETS}?limit=1")).await;
    let (_, mut now) = page(&rest(&first)).await;
    fixture.drain(&last, "move-1").await;
    let mut answered = 0;
    for _ in 3..PAGES {
        let was_let_go = fixture.is_let_go(&last).await;
        let (status, next) = page(&rest(&now)).await;
        if was_let_go {
            assert_eq!(status, StatusCode::GONE, "{last} may have another owner: {next}");
        }
        if status != StatusCode::OK {
            break;
        }
        answered += 1;
        now = next;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(answered >= LEAST, "{answered} pages were answered: the list was cut short although its client was there");
    fixture.until_let_go(&last).await;
    // The one with the object in it.
    let (status, refused) = page(&rest(&now)).await;
    assert_eq!((status, refused["reason"].as_str()), (StatusCode::GONE, Some("Expired")), "{refused}");
    let (status, anew) = fixture.list(&format!("{SECRETS}?limit=500")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!anew.to_string().contains(&last), "it is not this shard's");
    nobody_waits_for_pages_that_are_never_asked_for(fixture).await;
}

async fn nobody_waits_for_pages_that_are_never_asked_for(fixture: &Fixture) {
    let (_, first) = fixture.list(&format!("{SECRETS}?limit=1")).await;
    let _abandoned = fixture.list(&format!("{SECRETS}?limit=1&continue={}", rest(&first))).await;
    fixture.drain("page-03", "move-2").await;
    let let_go = eventually("an abandoned list holds nothing", SOON, || async {
        if fixture.is_let_go("page-03").await { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let_go.await.unwrap();
}
