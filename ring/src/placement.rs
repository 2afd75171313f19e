//! The hash ring: which shard an object belongs to, from the available shards alone.

use std::{fmt::Write as _, num::NonZeroU32};

use xxhash_rust::xxh64::xxh64;

use crate::{name::ShardName, partition::PartitionKey, weight::Weight};

/// Tokens (virtual nodes) a shard has unless configured otherwise.
///
/// 100, the number of the thesis, leaves the fullest of 8 shards 13 % above the mean (DESIGN, "Sharder: Balance").
pub const DEFAULT_TOKENS_PER_SHARD: NonZeroU32 = NonZeroU32::new(4_000).expect("not zero");

/// The most tokens of a ring: 48 MB in each replica of the sharder, and as much again while the shards change.
pub const MAX_TOKENS: u64 = 4_000_000;
/// The most shards of a ring: each is looked at for many decisions, and has metrics of its own.
pub const MAX_SHARDS: usize = 1_000;

/// How many shards of these weights a ring may have, the first ones. A shard of weight 0 counts as one of weight 1, as it does
/// where all have none. The first always fits.
pub fn fitting(weights: impl IntoIterator<Item = Weight>, tokens_per_shard: NonZeroU32) -> usize {
    let mut tokens = 0_u64;
    let fits = |weight: &Weight| {
        let counted = if *weight == Weight::ZERO { Weight::ONE } else { *weight };
        let is_first = tokens == 0;
        tokens += u64::from(counted.tokens(tokens_per_shard));
        is_first || tokens <= MAX_TOKENS
    };
    weights.into_iter().take(MAX_SHARDS).take_while(fits).count()
}

/// A consistent hash ring over the available shards of a ring.
///
/// Token `i` of a shard is xxHash64 (seed 0) of `<shard><i>`; an object belongs to the shard of the
/// first token at or after the hash of its key, past the last token to the first one. Nothing is
/// stored: from the same shards and weights every caller computes the same placement.
///
/// A shard has as many tokens as its weight says, the first ones: a change of the weight adds some or takes some away,
/// and moves what belongs to those. Where all weights are 0, all count as 1: a weight says how shards compare, and
/// objects must have owners.
#[derive(Clone, Debug)]
pub struct HashRing {
    shards: Vec<ShardName>,
    /// How many tokens each of them has.
    counts: Vec<u32>,
    /// Ordered by hash.
    tokens: Vec<Token>,
}

/// The number of a shard within one [`HashRing`]: its place among the shards, sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(u32);

impl ShardId {
    /// Where the shard stands in a list of all.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A token: 12 bytes, where a pair of u64 and usize has 16. Its order is that of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Token {
    high: u32,
    low: u32,
    /// The index of its shard. Shards are sorted, so that two with the same token (2^-64) are told apart alike by
    /// everybody.
    shard: u32,
}

impl Token {
    fn new(hash: u64, shard: u32) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let (high, low) = ((hash >> 32) as u32, hash as u32);
        Self { high, low, shard }
    }

    fn hash(self) -> u64 {
        (u64::from(self.high) << 32) | u64::from(self.low)
    }
}

impl HashRing {
    /// The ring of these shards, all of weight 1, in whatever order and however often they are named.
    pub fn new(shards: impl IntoIterator<Item = ShardName>, tokens_per_shard: NonZeroU32) -> Self {
        Self::weighted(shards.into_iter().map(|shard| (shard, Weight::ONE)), tokens_per_shard)
    }

    /// The ring of these shards; one of weight 1 has `tokens_per_shard` tokens.
    pub fn weighted(shards: impl IntoIterator<Item = (ShardName, Weight)>, tokens_per_shard: NonZeroU32) -> Self {
        let (shards, counts) = tokens_of(shards, tokens_per_shard);
        let mut tokens = Vec::with_capacity(counts.iter().map(|count| *count as usize).sum());
        let mut text = String::new();
        for (index, (shard, count)) in (0..).zip(shards.iter().zip(&counts)) {
            for number in 0..*count {
                text.clear();
                // Writing to a String can't fail.
                let _ = write!(text, "{shard}{number}");
                tokens.push(Token::new(xxh64(text.as_bytes(), 0), index));
            }
        }
        tokens.sort_unstable();
        Self { shards, counts, tokens }
    }

    /// Whether a ring of these shards would be the same.
    pub fn is_of(&self, shards: impl IntoIterator<Item = (ShardName, Weight)>, tokens_per_shard: NonZeroU32) -> bool {
        let (shards, counts) = tokens_of(shards, tokens_per_shard);
        (&self.shards, &self.counts) == (&shards, &counts)
    }

    /// Whether every object belongs to the same shard in both.
    pub fn places_like(&self, other: &Self) -> bool {
        (&self.shards, &self.counts) == (&other.shards, &other.counts)
    }

    /// The shard that an object with this key belongs to; `None` when there is no shard at all.
    pub fn owner(&self, key: &PartitionKey) -> Option<&ShardName> {
        self.name(self.place(key.point())?)
    }

    /// The shard that an object whose key has this point belongs to; `None` when there is no shard at all.
    pub fn place(&self, point: u64) -> Option<ShardId> {
        let token = self.tokens.get(self.token_of(point)).or_else(|| self.tokens.first())?;
        Some(ShardId(token.shard))
    }

    /// The shard that an object with this key would belong to if there were only those that `admits` admits.
    pub fn owner_among(&self, key: &PartitionKey, admits: impl Fn(&ShardName) -> bool) -> Option<&ShardName> {
        self.name(self.place_among(key.point(), |shard| self.name(shard).is_some_and(&admits))?)
    }

    /// The same, by point and number.
    pub fn place_among(&self, point: u64, admits: impl Fn(ShardId) -> bool) -> Option<ShardId> {
        let (before, after) = self.tokens.split_at(self.token_of(point));
        // On to the next token until one is a shard's that is admitted: what the ring of those alone would say.
        after.iter().chain(before).map(|token| ShardId(token.shard)).find(|shard| admits(*shard))
    }

    /// The index of the first token at or after a point.
    fn token_of(&self, point: u64) -> usize {
        self.tokens.partition_point(|token| token.hash() < point)
    }

    /// The number of a shard by its name; `None` when it is none of the ring.
    pub fn id(&self, shard: &str) -> Option<ShardId> {
        let index = self.shards.binary_search_by(|known| known.as_str().cmp(shard)).ok()?;
        u32::try_from(index).ok().map(ShardId)
    }

    /// The name of a shard by its number.
    pub fn name(&self, shard: ShardId) -> Option<&ShardName> {
        self.shards.get(shard.index())
    }

    /// The shards with the number of tokens of each: their shares, by and large. Not all of them are 0.
    pub fn shares(&self) -> impl Iterator<Item = (&ShardName, u32)> {
        self.shards.iter().zip(self.counts.iter().copied())
    }

    /// The shards of this ring, sorted by name.
    pub fn shards(&self) -> &[ShardName] {
        &self.shards
    }
}

/// The shards, sorted by name and each once, with the number of tokens of each.
fn tokens_of(
    shards: impl IntoIterator<Item = (ShardName, Weight)>,
    tokens_per_shard: NonZeroU32,
) -> (Vec<ShardName>, Vec<u32>) {
    let mut shards: Vec<_> = shards.into_iter().collect();
    shards.sort_unstable();
    shards.dedup_by(|later, first| later.0 == first.0);
    let all_zero = shards.iter().all(|(_, weight)| *weight == Weight::ZERO);
    let count = |weight: Weight| if all_zero { Weight::ONE } else { weight }.tokens(tokens_per_shard);
    shards.into_iter().map(|(shard, weight)| (shard, count(weight))).unzip()
}

#[cfg(test)]
mod tests;
