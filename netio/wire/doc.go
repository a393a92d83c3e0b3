// Package wire is the codec of FLX1, the protocol between Felix clients and brokers.
//
// It owns the bytes: frame header, flags and features, the three binary bodies, the JSON messages of a single broker, error codes and
// retry classes, and the mapping from key to shard. It leaves to others what to do with them: no sockets, no buffers of its own, no
// clock, no state between calls. It imports the standard library only.
//
// # Threading and ownership
//
// Every function is pure; values may be used by one goroutine at a time. A Parse of a binary body keeps views of the bytes it was given:
// they are valid as long as the caller keeps the buffer, and are never written to. Strings, and everything that comes out of a JSON
// message, are copies. An Append function adds one whole frame, header included, to dst and returns the extended slice.
//
// # Format
//
//	0   u32  magic 0x464C5831 "FLX1"
//	4   u16  version 1
//	6   u16  flags: the layout of the payload; 0 is one JSON message
//	8   u32  length of the payload
//	12       payload
//
//	publish  [request id, ack mode] [producer, sequence] [key] tenant namespace stream  count (len, payload)*
//	events   [subscription id] [base offset] [skipped] [publisher]                      count ([time] len, payload)*
//	ack      status request id message [code, class] [reason, wait] [owner] [offset]
//
// Integers are big-endian. The bracketed parts are there exactly when their flag is. `count (len, payload)*` is the same in a publish
// and in an event frame without times, so a broker stores what it received and delivers what it stored (PutEventsHead).
//
// # Invariants
//
//  1. A declared count or length never sizes an allocation: it is compared with the bytes that are there first.
//  2. Parsing a binary body allocates nothing, except the strings of a failed ack or of an owner, and an error.
//  3. Parsing a JSON message allocates at most 4 times its length + 64 KiB (FuzzParseMessage holds this).
//  4. What Append writes, Parse reads back as the same value. What Parse accepts, Append writes back as the same bytes: for binary bodies
//     up to bytes after the last part, an unknown retry class (read as fatal) and a skipped count of 0; for JSON up to field order,
//     white space, nulls and unknown fields.
//  5. A bit that is not in KnownFlags is refused, never masked.
//
// # Limits
//
//	payload of a frame            MaxFrameBytes, 16 MiB; SplitFrame takes the limit from the caller and refuses by the header alone
//	key, name, ack text, reason   65,535 bytes (u16 length); an ack text beyond is cut at a character, a name or key is the caller's check
//	publisher of an event frame   255 bytes
//	fields of one JSON object     64; a further one is an error
//	nesting of a JSON message     32 levels; a deeper one is an error
//
// # Decisions
//
//   - JSON has one field list per message, used in both directions (json_fields.go), and a reader of its own. encoding/json was refused:
//     a 16 MiB `payloads` array of empty strings becomes 5.6 million slice headers there, about 20 times the input; it writes no
//     caller-defined field order without a struct per message and escapes `<` and `&`; and it takes the last of two equal fields, where
//     the published readers refuse the message.
//   - The payloads of a JSON batch come out as Records, in the layout of the binary publish, so that the broker has one way behind the door.
//   - Optional values are a value and a Has bool, as in Ack, not pointers: no allocation, and the zero message is the shortest one. Where
//     the empty string means absent on the wire (addresses, reasons, node ids), it does so here.
//   - A message with a bad field gives a MessageError with its type and request id, so that the refusal can be matched to the request.
//
// # Where to start
//
// header.go and flags.go, then publish.go; message.go for JSON, with the message types in messages_*.go.
package wire
