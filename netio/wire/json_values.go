package wire

import "fmt"

// The fields of messages that are more than a string, a number or bytes: names of enums, and enums with data.

// failure points at the fields that Error and PublishError share.
type failure struct {
	code             *Code
	codeName         *string
	retry            *Retry
	hasCode          *bool
	reason           *string
	retryAfterMillis *uint64
	hasDetail        *bool
}

// failure is code?, retry?, detail?. Without a code the other two mean nothing and are not read.
func (f *fields) failure(p failure) {
	if f.in == nil {
		f.writeFailure(p)
		return
	}
	var name, retry string
	if f.optStr("code", &name); name == "" {
		return
	}
	code, known := ParseCode(name)
	*p.code, *p.hasCode, *p.retry = code, true, code.DefaultRetry()
	if !known {
		*p.codeName = name
	}
	if f.optStr("retry", &retry); retry != "" {
		*p.retry = ParseRetry(retry)
	}
	if value := f.value("detail", false); value != nil {
		*p.hasDetail = true
		f.nested("detail", value, p.detail)
	}
}

func (p failure) detail(f *fields) {
	f.optStr("reason", p.reason)
	optNonzero(f, "retry_after_ms", p.retryAfterMillis)
}

func (f *fields) writeFailure(p failure) {
	name := *p.codeName
	if *p.code != 0 {
		name = p.code.String()
	}
	if !*p.hasCode || name == "" {
		return
	}
	f.str("code", &name)
	retry := p.retry.String()
	f.str("retry", &retry)
	if *p.hasDetail {
		f.key("detail")
		f.object(p.detail)
	}
}

// ackMode is an optional name; AckNone stands for absent.
func (f *fields) ackMode(name string, v *AckMode) {
	if f.in == nil {
		if *v != AckNone {
			text := v.String()
			f.str(name, &text)
		}
		return
	}
	if text, ok := f.text(name, false); ok {
		if *v, ok = ParseAckMode(string(text)); !ok {
			f.fail(name, `must be "none", "per_message" or "per_batch"`)
		}
	}
}

// routing is an optional name; RoutingModulo stands for absent.
func (f *fields) routing(name string, v *Routing) {
	if f.in == nil {
		if *v != RoutingModulo {
			text := v.String()
			f.str(name, &text)
		}
		return
	}
	if text, ok := f.text(name, false); ok {
		if *v, ok = ParseRouting(string(text)); !ok {
			f.fail(name, `must be "modulo" or "jump_hash"`)
		}
	}
}

// shardKind is a required name.
func (f *fields) shardKind(name string, v *ShardKind) {
	if f.in == nil {
		text := v.String()
		f.str(name, &text)
		return
	}
	if text, ok := f.text(name, true); ok {
		switch string(text) {
		case "stream":
			*v = ShardKindStream
		case "cache":
			*v = ShardKindCache
		default:
			f.fail(name, `must be "stream" or "cache"`)
		}
	}
}

// cursorReason is a required name.
func (f *fields) cursorReason(name string, v *CursorReason) {
	if f.in == nil {
		text := v.String()
		f.str(name, &text)
		return
	}
	if text, ok := f.text(name, true); ok {
		switch string(text) {
		case "too_old":
			*v = CursorTooOld
		case "in_future":
			*v = CursorInFuture
		default:
			f.fail(name, `must be "too_old" or "in_future"`)
		}
	}
}

// start is an optional position; StartDefault stands for absent.
func (f *fields) start(name string, v *StartPosition) {
	const want = `must be "latest", "earliest" or {"offset":n}`
	if f.in == nil {
		switch v.Kind {
		case StartLatest, StartEarliest:
			text := "latest"
			if v.Kind == StartEarliest {
				text = "earliest"
			}
			f.str(name, &text)
		case StartOffset:
			f.key(name)
			f.object(func(f *fields) { num(f, "offset", &v.Offset) })
		}
		return
	}
	value := f.value(name, false)
	switch {
	case value == nil:
	case value[0] == '{':
		v.Kind = StartOffset
		f.nested(name, value, func(f *fields) { num(f, "offset", &v.Offset) })
	case string(value) == `"latest"`:
		v.Kind = StartLatest
	case string(value) == `"earliest"`:
		v.Kind = StartEarliest
	default:
		f.fail(name, want)
	}
}

// refusal is a required reason: a name, or an object of the name with its data.
func (f *fields) refusal(name string, v *RefusalReason) {
	if f.in == nil {
		f.key(name)
		kind := v.Kind.String()
		if data := v.data(); data != nil {
			f.object(func(f *fields) {
				f.key(kind)
				f.object(data)
			})
			return
		}
		if v.Kind == 0 || int(v.Kind) >= len(refusalNames) {
			panic(fmt.Sprintf("BUG: wire: PublishRefused with reason %d", v.Kind))
		}
		f.out = appendJSONString(f.out, kind)
		return
	}
	value := f.value(name, true)
	if value == nil {
		return
	}
	if value[0] != '{' {
		text, ok := f.text(name, true)
		if !ok {
			return
		}
		v.Kind = refusalKind(text)
		if v.Kind == 0 || v.data() != nil {
			f.fail(name, "is no known reason")
		}
		return
	}
	f.nested(name, value, func(f *fields) {
		if f.in.n != 1 {
			f.problem = "it must have one field, the reason's name"
			return
		}
		m := f.in.members[0]
		v.Kind = refusalKind(m.name)
		data := v.data()
		if data == nil || m.value[0] != '{' {
			f.problem = "it is no known reason"
			return
		}
		f.nested(string(m.name), m.value, data)
	})
}

// data lists the fields that go with the kind, nil when there are none.
func (v *RefusalReason) data() func(*fields) {
	switch v.Kind {
	case RefusalSequenceGap:
		return func(f *fields) { num(f, "expected", &v.Expected) }
	case RefusalOffsetMismatch:
		return func(f *fields) { num(f, "tail", &v.Tail) }
	case RefusalNotLeader:
		return func(f *fields) {
			f.str("node_id", &v.NodeID)
			f.optStr("addr", &v.Addr)
		}
	}
	return nil
}

func refusalKind(name []byte) RefusalKind {
	for k := RefusalSequenceGap; int(k) < len(refusalNames); k++ {
		if refusalNames[k] == string(name) {
			return k
		}
	}
	return 0
}
