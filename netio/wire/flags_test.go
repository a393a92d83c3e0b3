package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestFlagsKind(t *testing.T) {
	tests := []struct {
		flags Flags
		want  FrameKind
	}{
		{0, FrameMessage},
		{0x0001, FramePublish}, {0x0009, FramePublish}, {0x0041, FramePublish}, {0x0049, FramePublish},
		{0x0109, FramePublish}, {0x0149, FramePublish},
		{0x0101, FrameInvalid}, // idempotent without acked
		{0x0008, FrameInvalid}, {0x0040, FrameInvalid}, {0x0011, FrameInvalid}, {0x0005, FrameInvalid}, {0x0021, FrameInvalid},
		{0x0010, FrameAck}, {0x0090, FrameAck}, {0x0210, FrameAck}, {0x0690, FrameAck}, {0x1090, FrameAck},
		{0x0410, FrameInvalid}, // detail without code
		{0x1210, FrameInvalid}, // code and offset
		{0x0080, FrameInvalid}, {0x1000, FrameInvalid}, {0x0018, FrameInvalid}, {0x0014, FrameInvalid},
		{0x0002, FrameEvents}, {0x0004, FrameEvents}, {0x0022, FrameEvents}, {0x0024, FrameEvents}, {0x0824, FrameEvents},
		{0x6824, FrameEvents}, {0x2004, FrameEvents}, {0x4004, FrameEvents},
		{0x0006, FrameInvalid}, // both event layouts
		{0x0804, FrameInvalid}, // skipped without offsets
		{0x0020, FrameInvalid}, {0x4000, FrameInvalid},
		{0x8000, FrameInvalid}, {0x8001, FrameInvalid}, {0x8010, FrameInvalid}, {0x8004, FrameInvalid},
	}
	for _, tt := range tests {
		got := tt.flags.Kind()
		if got != tt.want {
			t.Errorf("%#04x: kind %v, want %v", uint16(tt.flags), got, tt.want)
		}
		if err := tt.flags.Err(); (err != nil) != (tt.want == FrameInvalid) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%#04x: %v", uint16(tt.flags), err)
		}
	}
	if err := Flags(0x8001).Err(); !strings.Contains(err.Error(), "unknown flags 0x8000") {
		t.Errorf("an unknown bit is not named: %v", err)
	}
}

func TestFlagConstants(t *testing.T) {
	if got := PublishFlags | AckFlags | EventFlags; got != KnownFlags {
		t.Errorf("the three kinds have %#04x, known are %#04x", uint16(got), uint16(KnownFlags))
	}
	for bit := Flags(1); bit != 0; bit <<= 1 {
		if known := bit.Unknown() == 0; known != (bit != 0x8000) {
			t.Errorf("%#04x known: %v", uint16(bit), known)
		}
	}
	if OriginalV1Flags != FlagPublishBatch|FlagEventBatch|FlagEventBatchShared {
		t.Errorf("OriginalV1Flags %v", OriginalV1Flags)
	}
	if got := (FlagPublishBatch | FlagPublishAcked).String(); got != "PUBLISH_BATCH|PUBLISH_ACKED" {
		t.Errorf("String %q", got)
	}
	if Flags(0).String() != "0" {
		t.Errorf("String of none %q", Flags(0))
	}
}
