package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLoggerFormats(t *testing.T) {
	var text, machine bytes.Buffer
	newLogger(&text, true).Info("hello", "n", 1)
	newLogger(&machine, false).Info("hello", "n", 1)
	if !strings.Contains(text.String(), "msg=hello n=1") {
		t.Errorf("for people: %s", text.String())
	}
	var line map[string]any
	if err := json.Unmarshal(machine.Bytes(), &line); err != nil || line["msg"] != "hello" || line["n"] != 1.0 {
		t.Errorf("for machines: %s, %v", machine.String(), err)
	}
}

func TestRepeatsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := newLogger(&out, true)
		for i := range 25 {
			log.With("i", i).WithGroup("g").Warn("again")
			log.Info("other")
		}
		if again, other := strings.Count(out.String(), "again"), strings.Count(out.String(), "other"); again != repeatMost || other != repeatMost {
			t.Errorf("%d and %d lines, want %d each", again, other, repeatMost)
		}
		<-time.After(repeatSpan)
		out.Reset()
		log.Warn("again")
		if text := out.String(); !strings.Contains(text, "left_out=15") {
			t.Errorf("after a while: %s", text)
		}
	})
}

func TestRepeatsAreBounded(t *testing.T) {
	r := &repeats{since: map[string]*repeat{}}
	now := time.Unix(0, 0)
	for i := range 10 * repeatTexts {
		r.admit(fmt.Sprint(i), now)
		if len(r.since) > repeatTexts {
			t.Fatalf("%d texts are held", len(r.since))
		}
	}
}
