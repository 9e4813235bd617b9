"""Bounds of what clients, peers and operators can make grow, and what happens there; timings of one module stand
beside it.

Sizes are in bytes, times in milliseconds, everything else is a count.
"""

# --- notifications and subscriptions: past these the message is refused by name, the connection goes on
MAX_NAME_BYTES = 1024
MAX_ATTRIBUTES = 1024
ATTRIBUTE_NS, BYTES_A_NS = 500, 10
"""Estimated time to decode one attribute, in nanoseconds, and bytes that are decoded in one nanosecond beside that."""
MAX_NOTIFICATION_BYTES = 256 * 1024
MAX_EXPRESSION_BYTES = 16 * 1024
MAX_EXPRESSION_DEPTH = 100
MAX_REGEX_BYTES = 1024
MAX_REGEX_MEMORY_BYTES = 1 << 20
MATCH_MS_EXPRESSION = 64
"""Estimated time, in milliseconds, to match a notification of MAX_NOTIFICATION_BYTES with one expression of a
subscription (waypost/subscription/cost.py); the next ones: with all expressions of one session, of one client (a
principal, or an address for those without one), and, as the default of --match-ms, of one proxy. Past it the
subscription is refused. A session that comes from another proxy was accepted once, and is not refused."""
MATCH_MS_SESSION = 128
MATCH_MS_CLIENT = 128
MATCH_MS_PROXY = 512
FREE_NODES = 24
"""Nodes of the tree of an expression that count for nothing: those of most subscriptions. Bounded are the others."""
NODES_SESSION = 20_000
NODES_CLIENT = 30_000
NODES_PROXY = 1_000_000
"""Together with what each notification passes through them they take half a kilobyte each."""
SUBSCRIPTION_BYTES = 6 * 1024
"""Memory of a small subscription and of its part of a session, about. A proxy has as many as fit into half of
--memory, and one client may have half of those."""
SUBSCRIPTIONS_SHARE = 2
SESSION_BYTES = 24 * 1024
"""Memory of a session with one receiver, about. A proxy makes as many as fit into half of --memory, and no more than
--max-sessions."""
DESCRIBED_IN_MEMORY = 6
"""Bytes of memory that a byte of a session's descriptor takes, at most, where it is full of origins."""
SESSIONS_SHARE = 2
CREATIONS_PER_S, CREATIONS_AT_ONCE = 500, 1_000
"""Sessions that a proxy makes in a second, and at once after a while without; further clients wait. Each session
costs the registry, the changelog and the store a write. An attach to an existing session has no such bound."""
MAX_SUBSCRIPTIONS_PER_SESSION = 1000
DEFERRED_CHANGES = MAX_SUBSCRIPTIONS_PER_SESSION
"""Requests that wait for a session that is being handed over; past it, more are refused."""
MAX_RECEIVERS_PER_SESSION = 1000
MAX_DESCRIPTOR_BYTES = 768 * 1024
"""Bytes of a session without its notifications; past it, a subscription or a receiver more is refused: the
checkpoint is one record of a log."""
COUNTS_AT_ONCE = 16
"""Sessions with a queue of which a proxy reads what they have stored; the others when something comes for them."""
LET_GO_NOTED = 1_000
"""Entries of a session that policies of subscriptions let go of, and that its queue has not been held against; past it,
all entries of the queue are looked at."""
MAX_STORED = 100_000_000
"""The largest bound that a queue of a session can have, in notifications."""
MAX_STORED_BYTES = 1 << 40
BEST_EFFORT_EXPIRY_S = 10
"""The longest expiry of a receiver's registration on a connection of best effort, in seconds after its client has
gone."""
UNREGISTERED_REMEMBERED = 100
"""Unregistered receivers of which a session remembers what they had; the oldest go first."""
MAX_TTL_S = 10 * 365 * 86_400
"""The longest time to live of what is stored, in seconds."""
MAX_MESSAGE_TTL = 255
"""The largest TTL of a propagated message, and the most peers in its path."""
MAX_GATEWAY_LEASE_S = 366 * 86_400
"""The longest lease of a peer, in seconds."""
MAX_COUNT = 100_000
"""The largest maximum count of what is stored for a subscription."""
MAX_ID_LENGTH = 256
MAX_LISTED_PROXIES = 200
"""Proxies that a proxy names to a client, and that a client keeps of a search on its network."""
MAX_URL_LENGTH = 1024
"""Characters of the address of a proxy."""
MAX_REPORTED_OFFSETS = 2_400
"""Coordinates of one origin that a client names one by one in one message."""
MAX_ORIGINS_BYTES = 16 * 1024
"""Bytes of the names of the origins in one receiver's frontier."""
MAX_ORIGINS = 1_000
"""Origins in a frontier of a client."""
MAX_ORIGIN_LENGTH = MAX_ID_LENGTH + 20
MAX_KEYS = 64
"""Security keys of one notification, subscription or connection."""
MAX_KEY_BYTES = 1024
MAX_QUENCH_NAMES = 100
"""Attributes for which one producer asks what is wanted."""
MAX_RESOURCE_BYTES = 16 * 1024 * 1024
"""The largest resource that a rendezvous brings."""
RESOURCE_CHUNK_BYTES = 128 * 1024
"""Bytes of a resource in one notification."""
MAX_PATH_LENGTH = 1024
"""Characters of the path of a resource, and of why it cannot be had."""
RENDEZVOUS_BUFFER_BYTES = 20 * 1024 * 1024
"""Unacknowledged bytes of parts of resources at a requester; past it, the resource that has waited longest is given
up: not much more of it would come."""
QUENCH_EXAMINED_BYTES = 8 * 1024
"""Bytes of expressions that a proxy takes apart in one go for producers that ask what is wanted."""
QUENCH_EXAMINED = 200
"""Expressions that a proxy takes apart in one go for these producers; the others follow."""
QUENCH_COMPARED = 2_000
"""Terms that a proxy compares with what producers ask in one go, for all of them together."""
QUENCH_TERMS = 500
"""Terms in one message to such a producer."""

# --- frames: a larger one is refused by name and the connection goes on; one past the hard limit is not read at all,
#     and ends its connection
MAX_FRAME_BYTES = 8 * 1024 * 1024
HARD_FRAME_BYTES = 4 * MAX_FRAME_BYTES

UNPROVEN_BYTES = 64 * 1024
"""Bytes that a connection may send before its hello; past it, the connection is closed."""
CONNECTIONS_RESERVED = 64
"""Beyond --max-connections, for requests of operators and other proxies; past them a connection is closed at once."""
STALLED_READER_S = 15.0
"""Time for the rest of a message or request that has begun, in seconds; then the connection is closed."""
PIECE_BYTES, SMALL_PIECE_BYTES = 4 * 1024, 512
"""Bytes of what has arrived that are taken apart in one go; and where it is full of tiny frames."""
BODY_PIECE_BYTES = 64 * 1024
"""Bytes of a request's body that are taken in one go, if it is not in chunks."""
FEW_CONTROLS = 8
"""Pings, pongs and parts of a message that a client may send between two messages as anybody does."""
PARSED_A_TURN_S, TINY_A_TURN_S = 0.02, 0.004
"""Processor time, in seconds, for what all connections have sent, in one turn of the loop; past the second one, none of
those that send tiny frames. What is left waits for the next turn."""
CHANGES_A_TURN_S = 0.01
"""Processor time, in seconds, for requests of all clients in one turn of the loop; to publish, and to acknowledge, is
none."""
CAUSED_COST_FACTOR = 6
"""A request takes so many times as long in all: what it changes is written, registered at the site, promised, told."""
PAGES_WAIT_S = 5.0
"""Seconds for which such a page waits for others before it; then more are refused."""
DESCRIBED_S = 15e-9
"""Estimated processor time to write a byte of a session's descriptor to store and changelog, in seconds."""
PAGE_S = 0.005
"""Estimated processor time of a page for operators, in seconds, with its answer."""
SLICE_S, TINY_SLICE_S = 0.005, 0.002
"""Processor time, in seconds, for what one connection has sent, and for tiny frames; then others have their turn."""
FOLD_SLICE_S = 0.02
"""Processor time, in seconds, for records of the log in one go. One record may take longer, but for its expressions,
of which each is one step."""
FOLD_TURN_S = 0.2
"""Seconds for such slices in one turn of the loop, at most, where all others took as long in the turn before."""
MATCHES_AT_ONCE = 20_000
"""Matches of the log's records in one go: each session counts as ten, and each of its subscriptions that matched as
one more."""
MATCH_BYTES = 16
"""Memory of one match beside the notification, about; the characters of its name are the subscription's."""
LONG_EXPRESSION = 1_024
"""Characters of an expression; a client that subscribes to a longer one waits in line first, with all that do."""
PARSE_S = 8e-6
"""Estimated time to parse one character of such an expression, in seconds."""
CHEAP_BYTES = 4 * 1024
"""Bytes of an acknowledgement; a larger one costs its client a turn, a smaller one only counts for its rate."""
LINK_SLICE_NS = 20_000_000
"""Estimated processor time, in nanoseconds, for records that a link's sender compares with its neighbour's filters
in one go."""
WAITING_MESSAGES = 64
"""Decoded messages of one connection that wait; past it, the connection is not read."""
PONG_BYTES = 64 * 1024
"""Unread answers to pings; past it pings are not answered."""
REPLIES_BYTES = 1024 * 1024
"""Unread bytes for a connection; past it, nothing is taken of it that costs an answer, until it reads."""
REPLIES_WITHIN_S = 30.0
"""Time for which a connection may leave so much unread, in seconds; then it is closed."""
MESSAGE_BYTES = 100
"""Memory of a waiting message beside its own bytes."""
ADDRESS_BURST_S = 10.0
"""Seconds of changes that an address may ask for at once after a while without any."""
ADDRESSES_KEPT = 10_000
"""Addresses whose rates are remembered; those that asked for something last."""
TURN_CREDIT_S = 0.02
"""Processor time that each client may cost at once without waiting, in seconds, publishing apart."""
TURN_CREDIT_SHARE = 0.02
"""Seconds of that credit that come back in a second, for one client."""
FIRST_CREDIT_S = 0.002
"""Seconds of that credit that each new client has at least."""
LEAST_CREDIT_SHARE = 0.0005
"""Seconds of it that come back in a second to each client at least, whatever others do."""
CREDITS_SHARE, CREDITS_AT_ONCE_S = 0.1, 0.1
"""Seconds of credit that come back in a second for all clients together, and at once after a while without."""
LINE_SHARE = 0.4
"""Share of the processor for all clients together that cost more; they wait for each other."""

LONG_WRITE_BYTES = 32 * 1024
"""A frame that is larger waits for others like it before it is written: hundreds at once would hold up the loop."""
LONG_READ_BYTES = 64 * 1024
"""Bytes of a message that have arrived; past it, the rest waits for others like it."""
WRITE_S = 3e-9
"""Estimated time to write one byte of a frame that is larger than LONG_WRITE_BYTES, in seconds."""
RECEIVE_S = 10e-9
"""Estimated time to receive one byte and find that it is to be refused, in seconds."""

MEMORY_BYTES = 2 * 1024**3
"""The default of --memory: bytes that a proxy may take. The bounds below are parts of it: they hold for what clients
can make it keep, and leave room for what one message may need on its way."""
LEAST_MEMORY = 256 * 1024**2
UNFINISHED_SHARE = 16
"""The part of --memory, one of so many, for messages whose end has not come; past it, the connection that has sent
the most is closed."""
UNSENT_SHARE = 8
"""The part for what waits to be read by clients; past it, the connection with the most waiting is closed."""
QUEUED_SHARE = 8
"""The part for stored notifications that all sessions keep in memory."""

MAX_BODY_BYTES = 256 * 1024
"""Bytes of the body of an operator's request by HTTP; a larger one is not read."""
HANG_UP_WITHIN_S = 5.0
"""Time for what is on its way to a connection that the proxy ends, in seconds; then it is cut off."""
HELLO_WITHIN_S = 10.0
"""Time from the handshake of a client's WebSocket to the end of its hello, in seconds; then the connection is
closed."""
PEER_HELLO_WITHIN_S = 2.0
"""Time for the hello of another proxy, in seconds, and then again for the registry to report that incarnation of it."""

# --- moves
MOVES_AT_ONCE = 32
"""Sessions that one proxy hands over at one time for a drain or a rebalance; the others wait."""
REBALANCE_RATE = 50.0
"""Sessions a second that leave one proxy for a rebalance; the others wait."""
RELAY_OUT_OF_ORDER = 256
"""Messages of a relay that wait for one before them; past it the relay ends, and its client attaches again."""
RELAYS_REMEMBERED = 10_000
"""Ended relays that a proxy remembers; the oldest go first. A late message of a forgotten one counts as wrong."""
ACTIVATIONS_AT_ONCE = 64
"""Sessions that a proxy activates at one time when it has a new lease; the others wait in line."""
TRANSFERS_SHOWN = 500
"""Ended transfers that a proxy can tell of; the oldest go first."""

# --- clients
PRODUCERS_PER_CONNECTION = 100
"""Incarnations of producers that publish over one connection; past it, the next one is refused. A client library has
one."""
MAX_PUBLISH_BATCH = 1000
"""Notifications in one publish frame; the client library splits larger ones."""
FRAME_ATTRIBUTES = 50_000
"""Attributes of all notifications in one publish frame together: they are decoded at one time, before anybody else has
a turn. The client library splits larger ones."""
LONG_DECODING_S = 0.005
"""Estimated time to decode a publish frame, in seconds; one that takes longer waits in line first."""
PUBLISH_BYTES = 1024 * 1024
"""Bytes of one publish frame of the client library; a larger notification goes alone."""
OUTBOX_BYTES = 1 << 30
"""The most that waits in an outbox that is given no bound, in bytes of encoded notifications."""
OUTBOX_BYTES_IN_FLIGHT = 16 * 1024 * 1024
"""Bytes that an outbox publishes ahead of their acknowledgement; the rest waits on the disk."""
PUBLISH_WINDOW = 4000
"""Publishes without an answer; `publish` waits there."""
PRODUCER_QUEUE = 2 * PUBLISH_WINDOW
"""Notifications of one producer that wait for the log; past it, its publishes are refused."""
MAX_UNANSWERED_PUBLISHES = 2000
"""Publishes of one connection without an answer; past it, it is read no more until some have theirs."""
DELIVERY_BATCH = 200
"""Notifications in one delivery frame."""
DELIVERY_BATCH_BYTES = 1024 * 1024
ATTESTATIONS = 1_000
"""Attestations in one frame that says nothing else; a client that has more says them in several."""
ATTESTED_PER_S = 50_000
"""Notifications of which one client may attest in a second that it was given them; more than it is ever given."""
ATTESTATIONS_BYTES = 224 * 1024
COORDINATES_FRAME_BYTES = 256 * 1024
"""Bytes of a frame that names coordinates one by one: an attach, a detach, an acknowledgement. A larger one would be
decoded for long before it could be refused."""
RECEIVER_WINDOW = 4000
"""Delivered and not acknowledged, per receiver; the proxy stops sending there until acknowledged."""
MAX_OUT_OF_ORDER = 400
"""Notifications that a receiver may have before older ones, which its order put behind them; past it, the oldest
that it does not have is sent to it alone. As many are under way to it at most. A receiver that reports three times
as many is refused: all of that goes into the session's checkpoint."""
RETRY_ATTACH_MS = 250
"""Pause before a client library asks again for what a proxy could not do for a session, in milliseconds."""
PING_EVERY_S = 3.0
"""Pause between two pings of a client library to its proxy, or of a proxy to another, in seconds."""
PONG_WITHIN_S = 3.0
"""Time for the answer, in seconds; then the client library goes to another proxy, and a proxy connects again: one that
stands still holds up nobody for long."""
CLIENT_PING_EVERY_S = 20.0
"""Pause between two pings of a proxy to a client or peer, in seconds."""
CLIENT_PONG_WITHIN_S = 20.0
"""Time for the answer, in seconds; then the proxy ends the connection: the other side is gone without a word."""
RECENT_IDS = 65_536
"""Ids that a client library keeps beside its frontier; the oldest go first."""
RECEIVER_WINDOW_BYTES = 24 * 1024 * 1024
"""Bytes of the same; the proxy stops sending there too."""
CONNECTION_QUEUE_BYTES = 32 * 1024 * 1024
"""Unsent bytes of one connection; there the proxy hangs up, and the client resumes from its frontier. More than what a
receiver may have under way, or a backlog would hang up on everybody who comes for it."""

PACED_BYTES = 16 * 1024 * 1024
"""Bytes of frames of a client that wait for its rate; past it, the connection is not read."""

TAKEOVER_FIRST_MS = 200
"""Time for which a receiver's new connection keeps its registration against another incarnation of that receiver, in
milliseconds; it doubles each time."""
TAKEOVER_MAX_MS = 30_000
"""The longest such time; after as long without a takeover it begins anew."""
TAKEOVERS_REMEMBERED = 10_000
"""Receivers of which a proxy remembers takeovers; the oldest go first."""

# --- sessions
CHECKPOINTS_AT_ONCE = 100
"""Sessions that did not change and whose checkpoint is looked at in one go at least: one part of a round."""
NOTED_AT_ONCE = 64
"""Sessions of which the registry notes in one call up to which checkpoint clients were answered."""
SCANNED_AT_ONCE = 1_000
"""Sessions that a proxy looks after at one time at least: a second's or two's part of a round."""
QUEUE_IN_MEMORY = 2_000
"""Entries of a session kept in memory once stored; older ones are read back from the store."""
UNATTENDED_IN_MEMORY = 100_000
"""Entries in memory, once stored, of all sessions together to which nobody is attached."""
QUEUE_BYTES = RECEIVER_WINDOW_BYTES
"""Bytes of those entries, where so few sessions are there that all together have room for it (QUEUED_SHARE); and at
least:"""
QUEUE_BYTES_LEAST = 256 * 1024
KNOWN_KEPT = 64
"""Origins of a receiver's own frontier that are remembered when its client has gone; of more, only the session's."""
GATE_BYTES = 8 * 1024 * 1024
"""Bytes of notifications that wait behind a gate; past it, the buffer goes and the catch-up reaches further."""
GATE_BUFFER = 10_000
"""Notifications waiting behind a gate; past it the buffer goes and the catch-up reaches further."""
APPENDS_UNDER_WAY = 64
"""Appends on their way to the log, without those that wait to be admitted; past it a proxy reads no more from its
producers."""
ADMITTED_S = 0.125
"""Estimated time to match and deliver the notifications that were admitted and are not folded yet; past it the others
wait in node/machines/append_admission.py."""
ADMISSION_BATCH_S = 0.02
"""Estimated time of several notifications that are admitted together where others wait."""
ADMITTED_BYTES = 4 * 1024 * 1024
"""Bytes of notifications that were admitted and are not folded yet; past it a proxy reads no more of its producers."""
WAITING_BYTES = 64 * 1024 * 1024
"""Bytes of notifications that wait to be admitted; past it, a proxy reads no more of a producer of which some wait; and
past twice as many, of none."""
WAITING_BYTES_PER_CONNECTION = 4 * 1024 * 1024
"""Bytes of these notifications that came by one connection; past it, the proxy reads no more of that one."""
FACTS_WAITING = 50_000
"""Batches of facts on their way to the journal, one a step; past it a proxy reads no more from its clients."""
FACTS_BYTES = 32 * 1024 * 1024
"""Bytes of these facts, about."""
READ_AHEAD = 1_000
"""Entries that one read brings back from the store for a receiver, as far as its window has room for them."""
READ_BYTES = 4 * 1024 * 1024
"""Bytes of these entries; a read ends behind them."""
SWEEP_BATCH = 10_000
"""Entries that a sweep removes in one go; and it does not wait for its time where policy has gone on so far."""
SITE_STATE_MS_PER_INTEREST = 1
"""The least time between two writes of the site's state to the store, in milliseconds for each registered interest
and each filter of a neighbour: a proxy that starts reads the log again from there."""
STORE_BYTES = 4 * 1024 * 1024
"""Bytes of entries after which the store is written without waiting for the timer."""
UNSTORED_BYTES = 16 * 1024 * 1024
"""Bytes of entries that came since the store was last written, or are being written; past it the log waits."""
STORE_BATCH = 20_000
"""Entries after which the store is written without waiting for the timer."""
ENTRIES_EXAMINED = 5_000
"""Stored entries that one read looks at; where a receiver has more than those, the next read goes on behind them."""
ORIGINS_PASSED = 100
"""Origins of a frontier of which a read passes over what the receiver has; of the others it is read in vain."""
STORE_TRIM = 1_000
"""Entries that are taken away from the store in one go; the rest follows after what else is to be written."""
MAX_PRINCIPALS = 32
"""Principals in the access of one session; each may have a password, and setting one costs a hash."""
MAX_PASSWORD_LENGTH = 256
MAX_TOKEN_LENGTH = 4096
PASSWORDS_AT_ONCE = 64
"""Passwords that one proxy verifies, or that wait for it; past it, a receiver that attaches with one is told to come
again."""
PASSWORDS_OF_ONE = 4
"""Passwords of one principal of one session among them."""
FREE_TRIES = 3
"""Wrong passwords of a principal of a session before the next one has to wait: 1 s, and twice as long each time."""
LONGEST_WAIT_MS = 60_000
"""The longest such wait."""
PASSWORDS_TRIED = 4
"""Passwords that a client library tries, if it set others and was not answered; the oldest go first."""
UNKNOWN_PRINCIPALS_REMEMBERED = 10_000
"""Principals that no access knows and whose wrong passwords a proxy remembers all the same; the oldest go first. Trying
as many takes longer than LONGEST_WAIT_MS, so that what was forgotten tells nobody that the principal does not exist."""
ACCESS_CHANGES_AT_ONCE = 16
"""Changes of access whose passwords one proxy hashes, or that wait for it; past it, they are refused."""

# --- the site log
LOG_BATCH = 1000
"""Records in one read or append of a site log."""
HISTORIES_AT_ONCE = 4
"""Catch-ups that a proxy answers to other sites at a time; others wait their turn, or are asked for again."""
LOG_READ_BYTES = 4 * 1024 * 1024
"""Bytes of records in one read of an embedded log; it ends behind these."""
WITNESS_S = 5.0
"""Time for live proxies to say what they have seen of a log that was out of reach, or at which a proxy
starts, in seconds."""
LOG_END_SURE_S = 1.0
"""Pause before a log that ends before what was read of it is asked again, in seconds."""
LOG_BATCH_BYTES = 512 * 1024
"""Bytes of one append to Kafka; what is more goes with the next one."""
LOG_REQUEST_BYTES = 1024 * 1024
"""Bytes of one record at Kafka, and of what is asked for at one time; a larger record could not be appended."""
LOG_WRITES_TOGETHER = 64
"""Writes to an embedded log or changelog that share one transaction; the others go into the next one."""
RETRY_PAUSES_S = (0.05, 1.0)
"""The pause before a Kafka or an etcd that did not answer is tried again: the first one, and the longest."""

HEARTBEAT_S = 5.0
"""Time without a turn of a proxy's event loop, in seconds; past it, the lease is not renewed: others may take its
sessions over."""

# --- the registry
ROWS_FORGOTTEN = 100
"""Rows of deleted sessions that are removed from the registry in one go."""
FORGET_AFTER_MS = 10 * 60_000
"""Time for which the row of a deleted session stays in the registry, in milliseconds: clients that ask for the
session meanwhile are told sooner."""
REGISTRY_ROWS = 10_000
"""Rows of etcd in one read; the others are in the next ones, at the same revision."""
REGISTRY_CHANGES = 1_000
"""Changes of an embedded registry in one read; the others are in the next one."""
REGISTRY_CHANGES_KEPT = 10_000
"""Changes that an embedded registry keeps; a watch that is further behind is told of all rows anew."""
REGISTRY_CHANGES_PRUNED = 1_000
"""Changes beyond those, with which the embedded registry drops the older ones."""

# --- handover
TRANSFERS_REMEMBERED = 10_000
"""Ids of transfers that each role remembers after their end; the oldest go first."""
CHUNK_ENTRIES = 500
CHUNK_BYTES = 1024 * 1024
COPY_AT_ATTACH = 2_000
"""Stored entries of a session whose receiver attached elsewhere; with more it is relayed while they are copied."""
COPY_UNSAVED = 2_000
"""Entries of a copy that may wait for the target's disk; past it chunks are acknowledged when they are stored."""
COPY_KEPT_MS = 5 * 60_000
"""Time for which a target keeps the part of a copy that was broken off, in milliseconds; then the copy begins anew."""
COPIES_KEPT = 32
"""Partial copies that a target keeps; the oldest go first. They are on its disk, but for the end of each queue."""
CHUNK_WINDOW = 4
"""Chunks sent ahead of their acknowledgement."""

# --- between proxies
PEER_QUEUE = 10_000
"""Messages waiting for one peer; past it they are lost, and what needs an answer is sent again."""
PEER_QUEUE_BYTES = 64 * 1024 * 1024
"""Bytes of these messages."""

REFUSAL_DETAIL = 300
"""Characters of a log line about what another proxy said wrong; the rest is cut off."""

# --- the log of a proxy
LOG_LINES_ALIKE = 5
"""Lines of one kind, a failover or a handover that ended without effect by one cause, within LOG_LINES_MS; the
others are counted in one more line."""
LOG_LINES_MS = 10_000
"""Time after which that line is written, in milliseconds, and the next ones are written again."""

# --- links and catch-up
MAX_SITES_PASSED = 1_000
"""Sites that a notification, or the announcement of a hole, may pass: more than any dispatching tree is deep. What has
passed so many is not passed on: it comes from a neighbour that lies."""
LINK_BATCH = 500
"""Records in one message of a link."""
LINK_BYTES = 1024 * 1024
LINK_WINDOW = 5_000
"""Records sent over a link ahead of their acknowledgement; the sender waits there."""
LINK_WINDOW_BYTES = 16 * 1024 * 1024
"""Bytes of the same; the sender waits there too."""
LINK_LIVE = 5_000
"""Records just folded that a waiting sender keeps; past it they go, and are read from the log again."""
LINK_REQUEST_FILTERS = 100
"""Filters in a request to a neighbour, which reads them and puts them into its index within one turn of its loop."""
LINK_KEYS = 2_048
"""Keys, of all sessions together, with which one expression is requested of another site; with more it is requested for
everybody, and producers there are not told that nobody wants what they publish."""
LINK_REQUEST_BYTES = 256 * 1024
"""The size of a request of filters to a neighbour, about: with one expression more it is below a record's bound."""
LINK_LIVE_BYTES = 16 * 1024 * 1024
"""Bytes of the same; likewise."""
LINK_QUEUE = 10_000
"""Records that came over a link and were not yet asked to be appended; past it, the far side did not keep to its
window, and the link is opened again."""
LINK_QUEUE_BYTES = 2 * LINK_WINDOW_BYTES
"""Bytes of the same."""
LINK_LEASE_MS = 10_000
"""How long a link counts as up after the neighbour has last granted a lease of it."""
LINK_LONGEST_PAUSE_MS = 1_000
"""The longest pause before a link that ended is opened again."""
CATCH_UPS_AT_ONCE = 4
"""Pieces of history that a proxy asks a site for at one time; other sessions wait in line."""
CATCH_UP_MAX_PAUSE_MS = 5_000
"""The longest pause between two questions to a site that does not answer, in milliseconds."""
LOG_END_MS, LOG_END_RETRY_MS = 5_000, 500
"""Time for which a proxy asks a site how far its log goes, and the pause between two questions, in milliseconds;
then a subscription ends without the answer."""
CATCH_UP_BATCH = 500
CATCH_UP_BYTES = 1024 * 1024
CATCH_UP_RECORDS = 20_000
"""Records that are read for one answer: a long range with few matches is answered in parts, each in time."""
DRAINED_AT_ONCE = 100
"""Sessions of which each step of the engine looks whether they are drained, while a closing marker counts."""
GATED_AT_ONCE = 500
"""Sessions with gates that are looked at together where nothing has happened to them."""

JOURNAL_SEGMENT = "256MiB"
"""A part of a journal, unless the configuration says otherwise; the next one begins then."""
JOURNAL_NAMES_BYTES = 128 * 1024
"""Names of writers of which a part of a journal says what the parts before it had; the one that wrote the longest ago
goes first. The fact that says so is one record of Kafka, of 1 MiB at most, and a name may take six times as many bytes
there."""
IDENTITY_RECORDS = 10_000
"""Records of a log's beginning in which its identity is looked for, by a proxy that has never read it."""

# --- the watchdog: what stands still for longer, although there is more, is a trouble, and takes readiness away
TAIL_STALL_MS = 10_000
"""The position in the site log, while the log ends beyond it."""
WATCH_STALL_MS = 10_000
"""The registry's watch, which gives a sign of life every two seconds."""
JOURNAL_STALL_MS = 20_000
"""Facts that wait for the journal."""
TIMER_STALL_MS = 5_000
"""The engine's deadlines, while one is overdue."""
EFFECT_STALL_MS = 30_000
"""The effect that has waited longest for its answer."""
GUARD_STALL_MS = 40_000
"""The comparisons of the site log with what was read of it, while log and registry answer; at most 10 s each."""
LINK_STALL_MS = 20_000
"""A link that this proxy leads; it costs no readiness: a site that is away blocks nobody else."""
FILTERS_STALL_MS = 20_000
"""A request of filters to a neighbour that sends all the same; likewise."""
