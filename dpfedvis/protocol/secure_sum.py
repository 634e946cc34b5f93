"""Secure sum: the server learns the sum of the sites' integers and who is in it, and nothing else of them.

Bonawitz et al. 2017 ("Practical Secure Aggregation"), the variant against a server that lies, over the integers modulo
2⁶⁴, with a mask between any two sites. Nothing here reads or sends. `Member`, a site, and `Collector`, the server, take
messages and give messages:

    advertise   a fresh X25519 key for a batch of labels, one more a label, signed by the site's pinned identity
    share       t-of-P shares of the two secrets of each label, encrypted to each peer
    masked      values + self mask ± one mask a peer
    confirm     a signature of the list of survivors: those whose masked values came
    unmask      shares of the survivors' self masks, and of the mask keys of those who dropped out

A label is one sum, once and for ever. The first two exchanges are made ahead for a batch of labels.

**Threat model.** The server and up to c of the P sites work together and do as they like; all messages pass through the
server. The other, honest sites run this code, pinned the same roster, threshold and context, draw good randomness, and
write down what they answered before it leaves. 2t > P + c: the caller, who knows c, checks it. `Collector` is trusted
with nothing: secrecy rests on `Member` and what it calls.

**Claim.** For a label, server and c sites learn at most the sum over *all* honest sites on *one* list of survivors, of
which there are at least t − c. (Random-oracle model for HKDF-SHA256; Diffie–Hellman on X25519, ChaCha20 as a generator,
ChaCha20-Poly1305 and Ed25519 are secure.)

**Proof obligations**, and where they are met:

1. *One list.* Shares are given for a list with t signatures of its own members (`unmask`), of whom t − c are honest. An
   honest site signs one list a label (`confirm`). Two lists would need 2(t − c) ≤ P − c, so 2t ≤ P + c.
2. *Never both secrets of an honest site.* By 1, all honest sites open the same one of the two, self mask or key. Of the
   other one at most c < t shares are known. So a masked vector that is not in the sum stays behind its self mask, and
   masks between two honest survivors stay secret.
3. *Nothing smaller than the whole sum.* An honest signer masked with all of the list (`confirm`), so with every other
   signer. An honest survivor u that did not sign masked with t − c − 1 other honest sites or more (`masked`). Those and
   the t − c honest signers are among P − c − 1 sites, fewer than both numbers together: u and some signer have a mask
   between them that nobody else knows. So masks tie all honest survivors together, and cancel in the sum over all of
   them only. A mask that only one of two sites added cancels nowhere, and hides more.
4. *A mask hides one vector.* Secrets are fresh for each label, `masked` draws on them once and drops them; asked again,
   it gives the same bytes, also after a crash (`to_bytes`).
5. *One question.* What sites were asked for is in their masks and in what they sign (`masked`, `confirm`): the cells of
   uploads that answer different requests mean different things, and so would the noise of their sum.
6. *Keys are those of the roster.* They are signed, for these labels, by identities that were pinned before (`share`);
   the server issues none. P, t and the place of a share are those of the roster, whatever the server shows.
7. *What is signed, derived or encrypted has one meaning.* `Group.said` puts protocol, version, purpose, context,
   threshold, roster, label and names into all of it, as JSON, which can be read in one way only.

**Not promised.** Values are hidden, not bounded. Who took part is not hidden. A site or the server can stop a sum, add
what it likes, or publish another number. Python cannot wipe memory: forgotten means no longer reachable.
"""

from dpfedvis.protocol.sum_collector import Collector
from dpfedvis.protocol.sum_facts import (
    Advert,
    AlreadyAnswered,
    CannotOpen,
    InvalidMessage,
    NotAuthentic,
    Opened,
    OutOfOrder,
    SecureSumError,
    Shares,
    TooFewMembers,
    Total,
)
from dpfedvis.protocol.sum_member import Member

__all__ = [
    "Advert",
    "AlreadyAnswered",
    "CannotOpen",
    "Collector",
    "InvalidMessage",
    "Member",
    "NotAuthentic",
    "Opened",
    "OutOfOrder",
    "SecureSumError",
    "Shares",
    "TooFewMembers",
    "Total",
]
