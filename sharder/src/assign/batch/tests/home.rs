//! What was given to a shard that is not its home by then.

use super::*;

/// Its pass may have looked while the object was on the move.
#[tokio::test]
async fn what_is_given_past_a_shard_that_is_back_by_then_has_the_objects_looked_at_again() {
    for (is_back, has_children) in [(true, true), (true, false), (false, true)] {
        let api = FakeApi::default();
        let mut scope = scope(&api);
        if !has_children {
            scope.main.controlled.clear();
        }
        let (_, main, _) = owner_and_child(&api, &scope, "a", "b");
        scope.newest.set(Some(late("a")));
        let (newest, of_main) = (scope.newest.clone(), main.clone());
        api.intercept(move |asked, _| {
            if is_back && asked.method == Method::PATCH && asked.path == of_main {
                newest.set(None);
            }
            None
        });
        assert_eq!(process(&scope, vec![target(&api, &main, &scope)]).await, vec![]);
        assert_eq!(shard_of(&api, &main, &scope).as_deref(), Some("b"));
        let due = scope.due.of(&scope.main.resource.id);
        assert_eq!(due.contains(&Pass::Objects), is_back, "{has_children}: {due:?}");
    }
}
