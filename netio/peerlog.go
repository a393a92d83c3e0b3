package netio

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A logCause is something that a peer can bring about as often as it likes and that an operator may want to know.
type logCause uint8

const (
	logRefused     logCause = iota // a connection was refused in the handshake
	logAuth                        // a stream did not authenticate
	logAuthTimeout                 // nor did any of a connection
	logMalformed                   // a frame that cannot be read
	logFlags                       // a frame of no kind that a broker takes
	logOversized                   // a frame above its limit
	logSlowFrame                   // a frame whose rest did not come
	logRequests                    // too many requests in a second
	logCauses                      // their number
)

var logTexts = [logCauses]string{
	"netio: a connection was refused",
	"netio: a stream did not authenticate",
	"netio: a connection did not authenticate in time and was closed",
	"netio: a client sent what cannot be read",
	"netio: a client sent a frame with flags that are not taken",
	"netio: a client sent a frame that is too large",
	"netio: a client did not finish a frame and lost its stream",
	"netio: a client asks too much and was refused",
}

const (
	// logWindow is the time in which one cause gets Limits.LogLines lines. What comes beyond is counted, and told in one line when it is over.
	logWindow = time.Minute
	// logTextBytes bounds the text of a line that a peer has a say in.
	logTextBytes = 256
)

// A peerLog writes the lines that peers cause, each cause within its bound whatever the others do. It may be used from any goroutine.
type peerLog struct {
	log        *slog.Logger
	now        func() time.Duration
	lines      int // of a cause in a logWindow
	causes     [logCauses]logBound
	suppressed atomic.Uint64 // lines left out
}

// A logBound is the window of one cause.
type logBound struct {
	mu      sync.Mutex
	begun   time.Duration // of the window; guarded by mu, as are the others
	lines   int           // written in it
	left    uint64        // left out in it
	running bool          // there is a window
}

// say writes a line about a cause, or counts it. why may be a peer's text.
func (p *peerLog) say(cause logCause, peer, why string) {
	b := &p.causes[cause]
	now := p.now()
	b.mu.Lock()
	left := b.expire(now)
	if !b.running {
		b.running, b.begun = true, now
	}
	write := b.lines < p.lines
	if write {
		b.lines++
	} else {
		b.left++
	}
	b.mu.Unlock()
	p.sum(cause, left)
	if !write {
		p.suppressed.Add(1)
		return
	}
	if len(why) > logTextBytes {
		why = why[:logTextBytes] + "..."
	}
	p.log.Warn(logTexts[cause], "client", peer, "why", why)
}

// expire ends a window that is over and returns how many lines it left out. The caller holds mu.
func (b *logBound) expire(now time.Duration) (left uint64) {
	if !b.running || now-b.begun < logWindow {
		return 0
	}
	left = b.left
	b.running, b.lines, b.left = false, 0, 0
	return left
}

// flush tells what was left out in windows that are over.
func (p *peerLog) flush() {
	now := p.now()
	for cause := range p.causes {
		b := &p.causes[cause]
		b.mu.Lock()
		left := b.expire(now)
		b.mu.Unlock()
		p.sum(logCause(cause), left)
	}
}

func (p *peerLog) sum(cause logCause, left uint64) {
	if left > 0 {
		p.log.Warn(logTexts[cause]+": further lines like this were left out", "lines", left, "within", logWindow)
	}
}

// say is peerLog.say about the stream's connection.
func (st *stream) say(cause logCause, why string) { st.conn.say(cause, why) }

func (c *conn) say(cause logCause, why string) {
	c.server.peers.say(cause, c.quic.RemoteAddr().String(), why)
}
