package ceiling

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestServeAsked talks to a server half as the other process does: a line that says where it is, a count for each line, its end with
// that of its input.
func TestServeAsked(t *testing.T) {
	in, ask := io.Pipe()
	answer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serveAsked("sink 0", in, out)
		out.Close()
		ended <- err
	}()
	var r ready
	if err := json.NewDecoder(answer).Decode(&r); err != nil || r.Address.Port() == 0 || !r.Address.Addr().IsLoopback() || len(r.Certificate) == 0 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := ask.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	count := make([]byte, len("0\n"))
	if _, err := io.ReadFull(answer, count); err != nil || string(count) != "0\n" {
		t.Errorf("%q %v", count, err)
	}
	ask.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{"sink": "want a probe and a number", "sun 0": `no probe "sun"`, "loop 0": "rings is 0", "loop 4097": "rings is 4097"} {
		if err := serveAsked(text, strings.NewReader(""), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestProcess(t *testing.T) {
	p, err := startProcess(t.Context(), ask{probe: probeSink})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.received(t.Context()); err != nil || n != 0 {
		t.Errorf("%d %v", n, err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.received(t.Context()); err == nil {
		t.Error("a dead process answers")
	}
	if err := p.close(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a process that was killed ends well: %v", err)
	}
}

// TestNoServeIfAsked wants a program that forgot ServeIfAsked to stop there, and not to start itself again for ever.
func TestNoServeIfAsked(t *testing.T) {
	t.Setenv(serverVariable, "echo 0")
	if _, err := TwoProcesses.Echo(t.Context(), 256, 1); err == nil || !strings.Contains(err.Error(), "must call ceiling.ServeIfAsked first") {
		t.Error(err)
	}
}
