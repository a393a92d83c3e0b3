package netio

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"felix/replicate"
)

const (
	// maxAccounts bounds the tenants that a server knows apart. Where all of them have open streams, further ones share one account.
	maxAccounts = 1024
	// maxTenantLabels bounds the tenants that are named in Stats, and so the series of metrics. The others are told together.
	maxTenantLabels = 100
	// OverflowTenant is the name under which Stats tells of tenants without a name of their own.
	OverflowTenant = "_overflow"
)

// An account is what a server knows of a tenant besides its name. Streams of all cores share it; nothing on the way of a publish
// that is let through writes to it.
type account struct {
	name   string
	counts tenantCounts

	streams  int  // open ones; guarded by accounts.mu
	labelled bool // has a name in Stats; guarded by accounts.mu
}

// tenantCounts may be counted up from any goroutine.
type tenantCounts struct {
	queueRefused, queueShed atomic.Uint64
}

// TenantStats counts the publishes of a tenant that did not go through at once. All of them rise only.
type TenantStats struct {
	Tenant                  string
	QueueRefused, QueueShed uint64 // acked ones refused after waiting for a slot; ones without ack dropped for want of a slot or of bytes
}

func (t *TenantStats) add(c *tenantCounts) {
	t.QueueRefused += c.queueRefused.Load()
	t.QueueShed += c.queueShed.Load()
}

func (t TenantStats) zero() bool { return t == TenantStats{Tenant: t.Tenant} }

// accounts holds the accounts by name. It is used when a stream authenticates and when it ends, not for a publish.
type accounts struct {
	mu       sync.Mutex
	byName   map[string]*account
	overflow *account    // of those that find no place
	labels   int         // accounts that are labelled
	gone     TenantStats // of accounts that made room for others
}

func (a *accounts) init() {
	a.byName = make(map[string]*account)
	a.overflow = &account{name: OverflowTenant}
	a.gone.Tenant = OverflowTenant
}

// enter returns the account of a tenant for a stream, which gives it back to leave.
func (a *accounts) enter(tenant string) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.byName[tenant]
	if t == nil {
		if !replicate.ValidName(tenant) {
			return a.overflow // nothing can be published to it, and it is no label
		}
		if len(a.byName) >= maxAccounts && !a.makeRoom() {
			return a.overflow
		}
		t = &account{name: tenant}
		a.byName[tenant] = t
	}
	t.streams++
	return t
}

func (a *accounts) leave(t *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t != a.overflow {
		t.streams--
	}
}

// makeRoom forgets an account without streams. The caller holds mu.
func (a *accounts) makeRoom() bool {
	for name, t := range a.byName {
		if t.streams == 0 && !t.labelled {
			a.gone.add(&t.counts)
			delete(a.byName, name)
			return true
		}
	}
	return false
}

// stats returns the accounts that have something to tell. A tenant that is named once stays named, and is not among the others
// before, so that no count falls.
func (a *accounts) stats() []TenantStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []TenantStats
	others := a.gone
	others.add(&a.overflow.counts)
	for _, t := range a.byName {
		s := TenantStats{Tenant: t.name}
		s.add(&t.counts)
		switch {
		case s.zero():
			continue
		case !t.labelled && a.labels < maxTenantLabels:
			t.labelled = true
			a.labels++
		case !t.labelled:
			others.add(&t.counts)
			continue
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b TenantStats) int { return cmp.Compare(a.Tenant, b.Tenant) })
	if !others.zero() {
		list = append(list, others)
	}
	return list
}
