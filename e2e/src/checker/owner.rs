//! Whose child an object is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ringside_ring::partition::controller_of;

/// The owner that has the child beside it: its controller, or its only owner where none says `controller: true`.
pub fn owner_of(references: Option<&[OwnerReference]>) -> Option<&OwnerReference> {
    let only = || match references? {
        [only] => Some(only),
        _ => None,
    };
    controller_of(references).or_else(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_comes_before_others_and_an_only_owner_before_none() {
        let owner = |uid: &str, controller| OwnerReference { uid: uid.to_owned(), controller, ..Default::default() };
        let (plain, controls) = (owner("plain", None), owner("controls", Some(true)));
        let of = |references: &[OwnerReference]| owner_of(Some(references)).map(|owner| owner.uid.clone());
        assert_eq!(of(&[plain.clone(), controls.clone()]).as_deref(), Some("controls"));
        assert_eq!(of(std::slice::from_ref(&plain)).as_deref(), Some("plain"));
        assert_eq!(of(&[plain.clone(), owner("other", Some(false))]), None);
        assert_eq!((of(&[]), owner_of(None)), (None, None));
    }
}
