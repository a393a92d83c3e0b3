package wire

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// sampleAcks are the longest failure and the longest success.
func sampleAcks() []*Ack {
	owner := &Owner{NodeID: "b2", Addr: "10.0.0.2:5000", Generation: 5}
	return []*Ack{
		{RequestID: 9, Failed: true, Message: "moving", HasCode: true, Code: CodeShardUnavailable, Retry: RetryRetry, HasDetail: true,
			Reason: ReasonMoving, RetryAfterMillis: 20, Owner: owner},
		{RequestID: 9, Owner: owner, HasOffset: true, Offset: 17},
	}
}

func TestAckCut(t *testing.T) {
	for _, a := range sampleAcks() {
		body := AppendAck(nil, a)[HeaderBytes:]
		for n := range len(body) {
			if err := new(Ack).Parse(a.Flags(), body[:n:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("flags %v, %d bytes of %d: %v", a.Flags(), n, len(body), err)
			}
		}
		if err := new(Ack).Parse(a.Flags(), append(body, 0)); err != nil {
			t.Errorf("a byte after the last part: %v", err)
		}
	}
}

func TestAckErrors(t *testing.T) {
	ok := AppendAckOK(nil, 1, 0, true)[HeaderBytes:]
	failed := AppendAck(nil, &Ack{Failed: true, HasCode: true, Code: CodeInternal, HasDetail: true})[HeaderBytes:]
	status2 := append([]byte{2}, ok[1:]...)
	badText := AppendAck(nil, &Ack{Failed: true, Message: "\xff"})[HeaderBytes:]
	tests := []struct {
		name  string
		flags Flags
		body  []byte
	}{
		{"status 2", FlagPublishAck, status2},
		{"offset on a failure", FlagPublishAck | FlagAckOffset, failed},
		{"code on a success", FlagPublishAck | FlagAckCode, ok},
		{"detail without code", FlagPublishAck | FlagAckDetail, failed},
		{"flags of a publish", FlagPublishBatch | FlagPublishAcked, ok},
		{"unknown flag", FlagPublishAck | 0x8000, ok},
		{"message is not UTF-8", FlagPublishAck, badText},
	}
	for _, tt := range tests {
		if err := new(Ack).Parse(tt.flags, tt.body); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// What a newer broker may say is kept or read as the safe thing.
func TestAckUnknownCodeAndClass(t *testing.T) {
	frame := AppendAck(nil, &Ack{RequestID: 1, Failed: true, HasCode: true, Code: 999, Retry: RetryRetry})
	frame[len(frame)-1] = 77
	var got Ack
	if err := got.Parse(FlagPublishAck|FlagAckCode, frame[HeaderBytes:]); err != nil || got.Code != 999 || got.Retry != RetryFatal {
		t.Errorf("%+v, %v", got, err)
	}
}

// Fields that do not belong to the status are not written, and the flags say so.
func TestAckFlagsFollowStatus(t *testing.T) {
	a := &Ack{Failed: true, HasOffset: true, Offset: 5}
	if got := a.Flags(); got != FlagPublishAck {
		t.Errorf("failure with offset: %v", got)
	}
	a = &Ack{HasCode: true, HasDetail: true, Code: CodeInternal}
	if got := a.Flags(); got != FlagPublishAck {
		t.Errorf("success with code: %v", got)
	}
	checkBytes(t, AppendAck(nil, a), AppendAckOK(nil, 0, 0, false))
	a = &Ack{Failed: true, HasDetail: true}
	if got := a.Flags(); got != FlagPublishAck {
		t.Errorf("detail without code: %v", got)
	}
}

func TestAckTextIsCut(t *testing.T) {
	long := strings.Repeat("ä", 40000) // two bytes each, so that the bound falls inside one
	frame := AppendAck(nil, &Ack{Failed: true, Message: long, HasCode: true, Code: CodeInternal, HasDetail: true, Reason: long})
	var got Ack
	if err := got.Parse(FlagPublishAck|FlagAckCode|FlagAckDetail, frame[HeaderBytes:]); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{got.Message, got.Reason} {
		if len(text) != math.MaxUint16-1 || !utf8.ValidString(text) {
			t.Errorf("cut to %d bytes, valid UTF-8: %v", len(text), utf8.ValidString(text))
		}
	}
}

func TestMaxAckOKBytes(t *testing.T) {
	if n := len(AppendAckOK(nil, math.MaxUint64, math.MaxUint64, true)); n != MaxAckOKBytes {
		t.Errorf("the longest success has %d bytes, MaxAckOKBytes is %d", n, MaxAckOKBytes)
	}
}
