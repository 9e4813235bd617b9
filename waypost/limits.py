"""Every bound in one place, and what happens there.

Sizes are in bytes, times in milliseconds, everything else is a count.
"""

# --- notifications and subscriptions: past these the message is refused by name, the connection goes on
MAX_NAME_BYTES = 1024
MAX_ATTRIBUTES = 1024
ATTRIBUTE_NS, BYTES_A_NS = 500, 10
"""What it takes about to decode an attribute; and so many bytes are decoded in a nanosecond."""
MAX_NOTIFICATION_BYTES = 256 * 1024
MAX_EXPRESSION_BYTES = 16 * 1024
MAX_EXPRESSION_DEPTH = 100
MAX_REGEX_BYTES = 1024
MAX_REGEX_MEMORY_BYTES = 1 << 20
MATCH_MS_EXPRESSION = 64
"""How long a notification of MAX_NOTIFICATION_BYTES may take, by estimate, to be held against one expression that a
client subscribes to (waypost/subscription/cost.py); then against all those of one session, of one client (a principal,
or for those who are nobody in particular an address), and, as the default of --match-ms, of one proxy. Past it the
subscription is refused. What comes with a session from another proxy was accepted once and never is."""
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
"""What a small subscription takes, about, with its part of a session. As many as fit into half of --memory a proxy has,
and one client may have half of those."""
SUBSCRIPTIONS_SHARE = 2
SESSION_BYTES = 24 * 1024
"""What a session takes, about, with one receiver. As many as fit into half of --memory are made at a proxy, and no more
than --max-sessions."""
SESSIONS_SHARE = 2
CREATIONS_A_S, CREATIONS_AT_ONCE = 500, 1_000
"""So many sessions are made at a proxy in a second, and so many at once after a while without; who comes then waits.
Each costs the registry, the changelog and the store a write. Attaching to one that is there has no such bound."""
MAX_SUBSCRIPTIONS_PER_SESSION = 1000
MAX_RECEIVERS_PER_SESSION = 1000
MAX_DESCRIPTOR_BYTES = 768 * 1024
"""Of a session without its notifications, when a subscription or a receiver comes to it: its checkpoint is one record
of a log."""
COUNTS_AT_ONCE = 16
"""Sessions with a queue of which a proxy reads what they have stored; the others when something comes for them."""
MAX_STORED = 100_000_000
"""The largest bound that a queue of a session can have, in notifications."""
MAX_STORED_BYTES = 1 << 40
BEST_EFFORT_EXPIRY_S = 10
"""A receiver's place on a connection of best effort lasts no longer than so many seconds after its client has gone."""
UNREGISTERED_REMEMBERED = 100
"""Receivers without a place any more of which a session knows what they had; the oldest go first."""
MAX_TTL_S = 10 * 365 * 86_400
"""The longest time to live of what is stored, in seconds."""
MAX_COUNT = 100_000
"""The largest maximum count of what is stored for a subscription."""
MAX_ID_LENGTH = 256
MAX_REPORTED_OFFSETS = 2_400
"""Coordinates of one origin that a client says one by one, in one message."""
MAX_ORIGINS_BYTES = 16 * 1024
"""Of the names of the origins in one receiver's frontier."""
MAX_ORIGINS = 1_000
"""Origins in one frontier that a client says."""
MAX_ORIGIN_LENGTH = MAX_ID_LENGTH + 20
MAX_KEYS = 64
"""Security keys that are said together, of a notification, a subscription or a connection."""
MAX_KEY_BYTES = 1024
MAX_QUENCH_NAMES = 100
"""Attributes of which one producer is told what anybody wants."""
MAX_RESOURCE_BYTES = 16 * 1024 * 1024
"""The largest resource that a rendezvous brings."""
RESOURCE_CHUNK_BYTES = 128 * 1024
"""Bytes of it in one notification."""
MAX_PATH_LENGTH = 1024
"""Characters of the path of a resource, and of why it cannot be had."""
MEETING_BYTES = 20 * 1024 * 1024
"""Bytes of parts of resources that who asked has unacknowledged; past it the one that waits the longest is given up:
not much more would come."""
QUENCH_EXAMINED_BYTES = 8 * 1024
"""Of the texts of the same."""
QUENCH_EXAMINED = 200
"""Expressions that a proxy takes apart in one go for producers who ask what is wanted; the others follow."""
QUENCH_COMPARED = 2_000
"""Terms that a proxy compares with what producers ask in one go, for all of them together."""
QUENCH_TERMS = 500
"""Terms in one message to such a producer."""

# --- frames: a larger one is refused by name and the connection goes on; one past the hard limit is not read at all,
#     and ends its connection
MAX_FRAME_BYTES = 8 * 1024 * 1024
HARD_FRAME_BYTES = 4 * MAX_FRAME_BYTES

UNPROVEN_BYTES = 64 * 1024
"""Of what comes on a connection before it has said who it is, all together; past it, it is closed."""
CONNECTIONS_RESERVED = 64
"""Beyond --max-connections, for requests of operators and other proxies; past them a connection is closed at once."""
STALLED_READER_S = 15.0
"""The rest of a message, or of a request, that has begun; then the connection is closed."""
PIECE_BYTES = 4 * 1024
"""What has come is taken apart in pieces of so many bytes."""
SLICE_S = 0.005
"""So much processor time on what one connection has sent; then others have their turn."""
FOLD_SLICE_S = 0.02
"""And so much on records of the log; one record may take longer, but for its expressions, of which each is one step."""
MATCHES_AT_ONCE = 20_000
"""Records of the log are folded in one go until they have matched so often: each session counts as ten, and each of
its subscriptions that matched as one more."""
MATCH_BYTES = 16
"""What each of these takes beside the notification and its own characters, about."""
LONG_EXPRESSION = 1_024
"""Characters; whoever subscribes to a longer one waits in line first, with all who do."""
PARSE_S = 8e-6
"""What each of its characters takes, about."""
CHEAP_BYTES = 4 * 1024
"""An acknowledgement that is larger costs its client a turn; others have only their own rate."""
LINK_SLICE_NS = 20_000_000
"""And so much, by estimate, on records that a link's sender compares with what its neighbour asks for."""
WAITING_MESSAGES = 64
"""Messages of one connection that are taken apart and wait to be looked at; past it, it is read no more."""
PONG_BYTES = 64 * 1024
"""Unread answers to pings; past it pings are not answered."""
REPLIES_BYTES = 1024 * 1024
"""Unread bytes for a connection; past it nothing is taken of it that costs an answer, until it reads."""
REPLIES_WITHIN_S = 30.0
"""So long it may let that be; then it is hung up on."""
MESSAGE_BYTES = 100
"""What a waiting message takes beside its own bytes."""
ADDRESS_BURST_S = 10.0
"""An address that was silent may ask for the changes of so many seconds at once."""
ADDRESSES_KEPT = 10_000
"""So many addresses are remembered: those that have asked for something last."""
TURN_CREDIT_S = 0.02
"""Processor time that each client may cost at once, publishing apart, without waiting."""
TURN_CREDIT_SHARE = 0.02
"""And so much of each second more."""
LINE_SHARE = 0.4
"""Of the processor, for all together that cost more; they wait for each other."""

LONG_WRITE_BYTES = 32 * 1024
"""A frame that is larger waits for others like it before it is written: hundreds at once would hold up the loop."""
LONG_READ_BYTES = 64 * 1024
"""Who has said so much of a message waits for others like it before more of it is read."""
WRITE_S = 3e-9
"""What a byte of such a frame takes, by estimate."""
RECEIVE_S = 10e-9
"""What it takes to receive a byte, and to find that it is not worth more, by estimate."""

MEMORY_BYTES = 2 * 1024**3
"""What a proxy may take, as the default of --memory. The bounds below are parts of it: they hold for what clients can
make it keep, and leave room for what one message may need on its way."""
LEAST_MEMORY = 256 * 1024**2
UNFINISHED_SHARE = 16
"""Messages of which the end has not come may take one part of so many; past it who has sent the most is closed."""
UNSENT_SHARE = 8
"""What waits to be read by clients; past it who has the most waiting is hung up on."""
QUEUED_SHARE = 8
"""Stored notifications that all sessions keep in memory."""

MAX_BODY_BYTES = 256 * 1024
"""Of what an operator asks by HTTP; what is more is not read."""
HANG_UP_WITHIN_S = 5.0
"""So long a connection that we end has for what is on its way to it; then it is cut off."""
HELLO_WITHIN_S = 10.0
"""So long a client has from the handshake of its WebSocket to its hello, all of it; then the connection is closed."""
PEER_HELLO_WITHIN_S = 2.0
"""So long another proxy has for the same, and then the registry to tell us of that incarnation of it."""

# --- moves
MOVES_AT_ONCE = 32
"""Sessions that one proxy hands over at one time for a drain or a rebalance; the others wait."""
REBALANCE_RATE = 50.0
"""Sessions a second that leave one proxy for a rebalance; the others wait."""
RELAY_OUT_OF_ORDER = 256
"""Messages of a relay that wait for one before them; past it the relay ends, and its client attaches again."""
RELAYS_REMEMBERED = 10_000
"""Relays of which a proxy remembers that they ended; the oldest go first. What is late of one counts as wrong then."""
ACTIVATIONS_AT_ONCE = 64
"""Sessions that a proxy takes the next epoch for at one time when it has a new lease; the others wait in line."""
TRANSFERS_SHOWN = 500
"""Ended transfers that a proxy can tell of; the oldest go first."""

# --- clients
PRODUCERS_PER_CONNECTION = 100
"""Lives of producers that publish over one connection; past it the next one is refused. A client library has one."""
MAX_PUBLISH_BATCH = 1000
"""Notifications in one publish frame; the client library splits larger ones."""
FRAME_ATTRIBUTES = 50_000
"""Attributes of all notifications in one publish frame together: they are decoded at one time, before anybody else has
a turn. The client library splits larger ones."""
LONG_DECODING_S = 0.005
"""A publish frame that takes longer, by estimate, waits in line first, with all who cost the loop much."""
PUBLISH_BYTES = 1024 * 1024
"""Bytes of one publish frame of the client library; a larger notification goes alone."""
PUBLISH_WINDOW = 4000
"""Publishes without an answer; `publish` waits there."""
MAX_UNANSWERED_PUBLISHES = 2000
"""Publishes of one connection without an answer; past it, it is read no more until some have theirs."""
DELIVERY_BATCH = 200
"""Notifications in one delivery frame."""
DELIVERY_BATCH_BYTES = 1024 * 1024
ATTESTATIONS = 1_000
"""Attestations in one frame that says nothing else; a client that has more says them in several."""
ATTESTED_A_S = 50_000
"""Notifications of which one client may attest in a second that it was given them; more than it is ever given."""
ATTESTATIONS_BYTES = 224 * 1024
COORDINATES_FRAME_BYTES = 256 * 1024
"""Of a frame that names coordinates one by one: an attach, a detach, an acknowledgement. More would be decoded for long
before it could be said that they are too many."""
RECEIVER_WINDOW = 4000
"""Delivered and not acknowledged, per receiver; the proxy stops sending there until acknowledged."""
OVERTAKING = 400
"""Notifications that a receiver may have before older ones, which its order put behind them; past it the oldest that
it does not have is sent to it alone. So much is under way to it at most. Who says to have three times as many is
refused: all of that goes into the session's checkpoint."""
RETRY_ATTACH_MS = 250
"""What a proxy could not do for a session at the moment, a client library asks again after so long."""
PING_EVERY_S = 3.0
"""So often a client library asks whether its proxy is still there."""
PONG_WITHIN_S = 3.0
"""So long it waits for the answer; then it goes to another proxy: one that stands still holds up nobody for long."""
RECENT_IDS = 65_536
"""Ids that a client library keeps beside its frontier; the oldest go first."""
RECEIVER_WINDOW_BYTES = 24 * 1024 * 1024
"""Bytes of the same; the proxy stops sending there too."""
CONNECTION_QUEUE_BYTES = 32 * 1024 * 1024
"""Unsent bytes of one connection; there the proxy hangs up, and the client resumes from its frontier. More than what a
receiver may have under way, or a backlog would hang up on everybody who comes for it."""

PACED_BYTES = 16 * 1024 * 1024
"""Bytes of frames of a client that wait because it may only say so much in a second; there it is read no more."""

TAKEOVER_FIRST_MS = 200
"""So long a receiver's new connection keeps its place against another life of that receiver; it doubles each time."""
TAKEOVER_MAX_MS = 30_000
"""And never longer than this; after so much peace it begins anew."""
TAKEOVERS_REMEMBERED = 10_000
"""Receivers of which a proxy knows that; the longest ago go first."""

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
"""Their bytes, where so few sessions are there that all together have room for it (QUEUED_PART); and at least:"""
QUEUE_BYTES_LEAST = 256 * 1024
GATE_BYTES = 8 * 1024 * 1024
"""Bytes of notifications that wait behind a gate; past it likewise."""
GATE_BUFFER = 10_000
"""Notifications waiting behind a gate; past it the buffer goes and the catch-up reaches further."""
APPENDS_UNDER_WAY = 64
"""Appends on their way to the log, without those that wait to be admitted; past it a proxy reads no more from its
producers."""
ADMITTED_S = 0.125
"""Estimated time to match and deliver the notifications that were admitted and are not folded yet; past it the others
wait in node/append_admission.py."""
ADMISSION_BATCH_S = 0.02
"""Estimated time of several notifications that are admitted together where others wait."""
ADMITTED_BYTES = 4 * 1024 * 1024
"""Bytes of notifications that were admitted and are not folded yet; past it a proxy reads no more of its producers."""
WAITING_BYTES = 64 * 1024 * 1024
"""Bytes of notifications that wait to be admitted; past it, a proxy reads no more of a producer of which some wait."""
WAITING_BYTES_EACH = 4 * 1024 * 1024
"""Of those, bytes that came by one connection; past it, the proxy reads no more of that one."""
FACTS_WAITING = 50_000
"""Batches of facts on their way to the journal, one a step; past it a proxy reads no more from its clients."""
FACTS_BYTES = 32 * 1024 * 1024
"""Bytes of the same, about."""
READ_AHEAD = 1_000
"""Entries that one read brings back from the store for a receiver, as far as its window has room for them."""
READ_BYTES = 4 * 1024 * 1024
"""And their bytes: a read ends behind these."""
SWEEP_BATCH = 10_000
"""Entries that a sweep removes in one go; and it does not wait for its time where policy has gone on so far."""
SITE_STATE_MS_PER_INTEREST = 1
"""The store has the whole of what the site log means not sooner than so many milliseconds after the last time, for each
hold, and each expression that a neighbour asks for: a proxy that starts reads the log again from there."""
STORE_BYTES = 4 * 1024 * 1024
"""Bytes of entries likewise."""
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
"""Passwords that one proxy looks at, or waits to; past it whoever attaches with one is told to come again."""
PASSWORDS_OF_ONE = 4
"""Of them, passwords of one principal of one session; past it likewise."""
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
"""Changes of access whose passwords one proxy hashes, or waits to; past it they are refused."""

# --- the site log
LOG_BATCH = 1000
"""Records in one read or append of a site log."""
LOG_READ_BYTES = 4 * 1024 * 1024
"""Bytes of records in one read of an embedded log; it ends behind these."""
WITNESS_S = 5.0
"""So long, where a log was out of reach, live proxies have to say what they have seen of it."""
LOG_END_SURE_S = 1.0
"""A log that ends before what was read of it is asked again after so long."""
LOG_BATCH_BYTES = 512 * 1024
"""Bytes of one append to Kafka; what is more goes with the next one."""
LOG_REQUEST_BYTES = 1024 * 1024
"""Bytes of one record at Kafka, and of what is asked for at one time; a larger record could not be appended."""
LOG_WRITES_TOGETHER = 64
"""Writes to an embedded log or changelog that share one transaction; the others go into the next one."""
RETRY_PAUSES_S = (0.05, 1.0)
"""The pause before a Kafka or an etcd that did not answer is tried again: the first one, and the longest."""

HEARTBEAT_S = 5.0
"""So long a proxy's event loop may have had no turn; then its lease is not renewed: others may take its sessions."""

# --- the registry
ROWS_FORGOTTEN = 100
"""Rows of deleted sessions that are removed from the registry in one go."""
FORGET_AFTER_MS = 10 * 60_000
"""So long the row of a deleted session stays there: who asks for the session meanwhile is told sooner."""
REGISTRY_ROWS = 10_000
"""Rows of etcd in one read; the others are in the next ones, at the same revision."""
REGISTRY_CHANGES = 1_000
"""Changes of an embedded registry in one read; the others are in the next one."""
REGISTRY_CHANGES_KEPT = 10_000
"""Changes that an embedded registry keeps; a watch that is further behind is told of all rows anew."""
REGISTRY_CHANGES_PRUNED = 1_000
"""It throws the older ones away each time that there are so many more."""

# --- handover
TRANSFERS_REMEMBERED = 10_000
"""Ids of transfers that a source remembers after their end; the oldest go first."""
CHUNK_ENTRIES = 500
CHUNK_BYTES = 1024 * 1024
COPY_AT_ATTACH = 2_000
"""Stored entries of a session whose receiver attached elsewhere; with more it is relayed while they are copied."""
COPY_UNSAVED = 2_000
"""Entries of a copy that may wait for the target's disk; past it chunks are acknowledged when they are stored."""
COPY_KEPT_MS = 5 * 60_000
"""So long a target keeps what came of a copy that was broken off; after it the copy begins anew."""
COPIES_KEPT = 32
"""Parts of copies that a target keeps so; the oldest go first. They are on its disk, but for the end of each queue."""
CHUNK_WINDOW = 4
"""Chunks sent ahead of their acknowledgement."""

# --- between proxies
PEER_QUEUE = 10_000
"""Messages waiting for one peer; past it they are lost, and what needs an answer is sent again."""
PEER_QUEUE_BYTES = 64 * 1024 * 1024
"""Bytes of the same."""

REFUSAL_DETAIL = 300
"""Characters of a log line about what another proxy said wrong; the rest is cut off."""

# --- the log of a proxy
LOG_LINES_ALIKE = 5
"""Lines of one kind, a failover or a handover that ended in vain by one cause; the others are counted in one more."""
LOG_LINES_MS = 10_000
"""In so long; then that line is written, and the next ones are told again."""

# --- links and catch-up
MAX_HOPS = 16
"""Sites that a notification passes; a link drops it there and speaks a progress marker instead."""
LINK_BATCH = 500
"""Records in one message of a link."""
LINK_BYTES = 1024 * 1024
LINK_WINDOW = 5_000
"""Records sent over a link ahead of their acknowledgement; the sender waits there."""
LINK_WINDOW_BYTES = 16 * 1024 * 1024
"""Bytes of the same; the sender waits there too."""
LINK_LIVE = 5_000
"""Records just folded that a waiting sender keeps; past it they go, and are read from the log again."""
LINK_LIVE_BYTES = 16 * 1024 * 1024
"""Bytes of the same; likewise."""
LINK_QUEUE = 10_000
"""Records come over a link and not yet asked to be appended; past it the far side did not heed its window, and the
link is opened again."""
LINK_QUEUE_BYTES = 2 * LINK_WINDOW_BYTES
"""Bytes of the same."""
LINK_LONGEST_PAUSE_MS = 1_000
"""The longest pause before a link that ended is opened again."""
CATCH_UPS_AT_ONCE = 4
"""Pieces of history that a proxy asks a site for at one time; other sessions wait in line."""
CATCH_UP_MAX_PAUSE_MS = 5_000
"""And it asks a site that does not answer no less often than this."""
LOG_END_MS, LOG_END_RETRY_MS = 5_000, 500
"""So long a proxy asks a site how far its log goes, and so often; then a subscription ends without the answer."""
CATCH_UP_BATCH = 500
CATCH_UP_BYTES = 1024 * 1024

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
LINK_STALL_MS = 20_000
"""A link that this proxy leads; it costs no readiness: a site that is away blocks nobody else."""
