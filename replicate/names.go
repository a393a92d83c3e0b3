package replicate

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"felix/fanout"
	"felix/netio/wire"
	"felix/wal"
)

// checkName returns an error that wraps ErrInvalid when name cannot name a what.
func checkName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w %s name: it is empty; use 1 to %d letters, digits, dashes, underscores or dots", ErrInvalid, what, MaxNameBytes)
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("%w %s name of %d bytes, %q and so on: use at most %d", ErrInvalid, what, len(name), name[:20], MaxNameBytes)
	}
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if alnum || i > 0 && (c == '-' || c == '_' || c == '.') {
			continue
		}
		if i == 0 {
			return fmt.Errorf("%w %s name %q: it begins with %q; begin with a letter or digit", ErrInvalid, what, name, firstRune(name))
		}
		return fmt.Errorf("%w %s name %q: byte %d is %q; use letters, digits, - _ . only", ErrInvalid, what, name, i, firstRune(name[i:]))
	}
	return nil
}

// ValidName reports whether something of the catalog can have the name.
func ValidName(name string) bool { return checkName("", name) == nil }

func firstRune(s string) rune {
	for _, r := range s {
		return r
	}
	return 0
}

// normalize fills in defaults and returns every problem at once, wrapping ErrInvalid. fsync is the catalog's default; lanes says whether
// there are any.
func (cfg *StreamConfig) normalize(fsync wal.Mode, lanes bool) error {
	set(&cfg.Shards, 1)
	set(&cfg.ReplicationFactor, 1)
	if cfg.Durable && cfg.OnSlow == 0 && !cfg.OnSlowGiven {
		cfg.OnSlow = fanout.CatchUp
	}
	if cfg.Durable && cfg.FsyncMode == 0 && !cfg.FsyncGiven {
		cfg.FsyncMode = fsync
	}
	cfg.OnSlowGiven, cfg.FsyncGiven = true, true
	errs := []error{checkName("tenant", cfg.Tenant), checkName("namespace", cfg.Namespace), checkName("stream", cfg.Name)}
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w stream %q: %s", ErrInvalid, cfg.Name, fmt.Sprintf(format, args...)))
	}
	if cfg.Shards > MaxShards {
		bad("shards is %d; use 1 to %d", cfg.Shards, MaxShards)
	}
	if cfg.Routing > wire.RoutingJumpHash {
		bad("routing is %d; use modulo or jump_hash", uint8(cfg.Routing))
	}
	if int(cfg.Kind) >= len(kindNames) {
		bad("kind is %d; use Stream or Queue", uint8(cfg.Kind))
	}
	if int(cfg.Consistency) >= len(consistencyNames) {
		bad("consistency is %d; use Leader or Quorum", uint8(cfg.Consistency))
	}
	if int(cfg.Delivery) >= len(deliveryNames) {
		bad("delivery is %d; use AtLeastOnce or AtMostOnce", uint8(cfg.Delivery))
	}
	if cfg.Durable && !lanes {
		bad("durable is true, and this broker has no log to keep records in; create it with durable false: its records live in memory")
	}
	errs = append(errs, checkSettings(cfg.Name, cfg.Durable, Settings{OnSlow: cfg.OnSlow, FsyncMode: cfg.FsyncMode, Retention: cfg.Retention}))
	return errors.Join(errs...)
}

// checkSettings checks what a Patch can change, too.
func checkSettings(stream string, durable bool, set Settings) error {
	onSlow, r := set.OnSlow, set.Retention
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w stream %q: %s", ErrInvalid, stream, fmt.Sprintf(format, args...)))
	}
	switch {
	case onSlow == fanout.CatchUp && !durable:
		bad("on_slow is catch_up, which reads a log on disk, and the stream is in memory; use drop_new, drop_old or block")
	case onSlow > fanout.CatchUp:
		bad("on_slow is %d; use drop_new, drop_old, block or, for a durable stream, catch_up", uint8(onSlow))
	}
	switch {
	case set.FsyncMode > wal.None:
		bad("fsync mode is %d; use on_commit, periodic or none", uint8(set.FsyncMode))
	case set.FsyncMode != wal.OnCommit && !durable:
		bad("fsync mode is %v, and the stream is in memory; leave it out, or create the stream durable", set.FsyncMode)
	}
	if r.MaxAge != 0 && r.MaxAge < time.Second {
		bad("retention max age is %v; use at least 1s, or leave it out", r.MaxAge)
	}
	if r.MaxSizeBytes < 0 {
		bad("retention max size is %d bytes; use at least 1, or leave it out", r.MaxSizeBytes)
	}
	return errors.Join(errs...)
}

// conflict returns a *ConflictError for the first fixed field in which want differs from have, nil when they agree.
func conflict(object string, have, want StreamConfig) error {
	for _, f := range []struct {
		name       string
		have, want any
	}{
		{"shards", have.Shards, want.Shards},
		{"routing", have.Routing, want.Routing},
		{"kind", have.Kind, want.Kind},
		{"durable", have.Durable, want.Durable},
		{"on_slow", have.OnSlow, want.OnSlow},
		{"fsync mode", have.FsyncMode, want.FsyncMode},
		{"max age", have.Retention.MaxAge, want.Retention.MaxAge},
		{"max size", have.Retention.MaxSizeBytes, want.Retention.MaxSizeBytes},
		{"replication factor", have.ReplicationFactor, want.ReplicationFactor},
		{"consistency", have.Consistency, want.Consistency},
		{"delivery", have.Delivery, want.Delivery},
		{"region", have.Region, want.Region},
	} {
		if f.have != f.want {
			return &ConflictError{Object: object, Field: f.name, Have: fmt.Sprint(f.have), Want: fmt.Sprint(f.want)}
		}
	}
	return nil
}

// A table is a map with its keys in order, for lists that are read page by page.
type table[T any] struct {
	byName map[string]T
	names  []string // sorted
}

func (t *table[T]) put(name string, v T) {
	if t.byName == nil {
		t.byName = make(map[string]T)
	}
	if _, ok := t.byName[name]; !ok {
		t.names = slices.Insert(t.names, sort.SearchStrings(t.names, name), name)
	}
	t.byName[name] = v
}

func (t *table[T]) remove(name string) {
	if _, ok := t.byName[name]; ok {
		delete(t.byName, name)
		i := sort.SearchStrings(t.names, name)
		t.names = slices.Delete(t.names, i, i+1)
	}
}

// page returns the entries after p.After; next is the last name when there are more.
func (t *table[T]) page(p Page) (list []T, next string) {
	names := t.names[sort.Search(len(t.names), func(i int) bool { return t.names[i] > p.After }):]
	if limit := p.limit(); len(names) > limit {
		names = names[:limit]
		next = names[limit-1]
	}
	list = make([]T, len(names))
	for i, name := range names {
		list[i] = t.byName[name]
	}
	return list, next
}
