package netio

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"felix/replicate"
)

const (
	// maxAccounts bounds the tenants that a server knows apart. Where all of them have open streams, further ones share one account.
	maxAccounts = 1024
	// maxTenantLabels bounds the tenants that are named in Stats, and so the series of metrics. The others are told together.
	maxTenantLabels = 100
	// maxQuotas bounds the tenants with a quota of their own; SetQuota refuses further ones.
	maxQuotas = 10_000
	// OverflowTenant is the name under which Stats tells of tenants without a name of their own.
	OverflowTenant = "_overflow"
)

// An account is what a server knows of a tenant besides its name. Streams of all cores share it; nothing on the way of a publish
// that is let through writes to it.
type account struct {
	name   string
	counts tenantCounts
	quota  atomic.Pointer[quota] // nil: none

	streams  int  // open ones; guarded by accounts.mu
	labelled bool // has a name in Stats; guarded by accounts.mu
}

// tenantCounts may be counted up from any goroutine.
type tenantCounts struct {
	queueRefused, queueShed              atomic.Uint64
	quotaRefused, quotaWaited, quotaShed atomic.Uint64
}

// TenantStats counts the publishes of a tenant that did not go through at once. All of them rise only.
type TenantStats struct {
	Tenant                               string
	QueueRefused, QueueShed              uint64 // acked ones refused after waiting for a slot; ones without ack dropped for want of a slot or of bytes
	QuotaRefused, QuotaWaited, QuotaShed uint64 // beyond the tenant's quota: acked ones refused; ones without ack that waited, or were dropped
}

func (t *TenantStats) add(c *tenantCounts) {
	t.QueueRefused += c.queueRefused.Load()
	t.QueueShed += c.queueShed.Load()
	t.QuotaRefused += c.quotaRefused.Load()
	t.QuotaWaited += c.quotaWaited.Load()
	t.QuotaShed += c.quotaShed.Load()
}

func (t TenantStats) zero() bool { return t == TenantStats{Tenant: t.Tenant} }

// accounts holds the accounts by name. It is used when a stream authenticates and when it ends, not for a publish.
type accounts struct {
	mu       sync.Mutex
	byName   map[string]*account
	overflow *account    // of those that find no place
	labels   int         // accounts that are labelled
	gone     TenantStats // of accounts that made room for others

	now      func() time.Duration
	burst    time.Duration
	standard Quota            // of tenants that are not in quotas
	quotas   map[string]Quota // as configured and set; guarded by mu
	given    map[string]Quota // as configured; never changed
}

func (a *accounts) init(c QuotaConfig, now func() time.Duration) error {
	a.byName = make(map[string]*account)
	a.overflow = &account{name: OverflowTenant}
	a.gone.Tenant = OverflowTenant
	a.now, a.burst, a.standard, a.given, a.quotas = now, c.Burst, c.Default, maps.Clone(c.Tenants), maps.Clone(c.Tenants)
	if a.burst == 0 {
		a.burst = time.Second
	}
	if a.quotas == nil {
		a.quotas = make(map[string]Quota)
	}
	a.overflow.quota.Store(newQuota(a.standard, a.burst, now))
	return c.Validate()
}

// Validate reports every value of c that is out of bounds. Zero fields count as their defaults.
func (c QuotaConfig) Validate() error {
	var problems []error
	if c.Burst < 0 || c.Burst > time.Hour || c.Burst != 0 && c.Burst < time.Millisecond {
		problems = append(problems, fmt.Errorf("tenant publish burst is %v; give 1 ms to 1 h", c.Burst))
	}
	if err := c.Default.validate(); err != nil {
		problems = append(problems, fmt.Errorf("tenant publish quota is %w", err))
	}
	if len(c.Tenants) > maxQuotas {
		problems = append(problems, fmt.Errorf("%d tenants have a quota of their own; give at most %d", len(c.Tenants), maxQuotas))
	}
	for name, q := range c.Tenants {
		if err := q.validate(); err != nil {
			problems = append(problems, fmt.Errorf("publish quota of tenant %q is %w", name, err))
		}
		if !replicate.ValidName(name) {
			problems = append(problems, fmt.Errorf("a publish quota is for tenant %q, and no tenant can have that name", name))
		}
	}
	return errors.Join(problems...)
}

// Where a quota in force comes from.
const (
	QuotaDefault    = "default"    // QuotaConfig.Default
	QuotaConfigured = "configured" // QuotaConfig.Tenants
	QuotaSet        = "set"        // SetQuota; forgotten when the process ends
)

// ErrTooManyQuotas is returned by SetQuota when 10,000 tenants have a quota of their own.
var ErrTooManyQuotas = fmt.Errorf("%d tenants have a publish quota of their own already; take one back first", maxQuotas)

// Quota returns the quota in force for a tenant, and where it comes from.
func (s *Server) Quota(tenant string) (q Quota, from string) {
	a := &s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	q, own := a.quotas[tenant]
	given, configured := a.given[tenant]
	switch {
	case !own:
		return a.standard, QuotaDefault
	case configured && q == given:
		return q, QuotaConfigured
	}
	return q, QuotaSet
}

// SetQuota puts a quota in force for a tenant, at once and with full buckets, until the process ends. The zero Quota frees the tenant from
// any. Publishes that wait for the quota before go on.
func (s *Server) SetQuota(tenant string, q Quota) error {
	if err := q.validate(); err != nil {
		return fmt.Errorf("quota of tenant %q is %w", tenant, err)
	}
	a := &s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, own := a.quotas[tenant]; !own && len(a.quotas) >= maxQuotas {
		return ErrTooManyQuotas
	}
	a.quotas[tenant] = q
	a.change(tenant)
	return nil
}

// UnsetQuota takes back what SetQuota has put in force for a tenant: what was configured holds again.
func (s *Server) UnsetQuota(tenant string) {
	a := &s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.quotas, tenant)
	if q, ok := a.given[tenant]; ok {
		a.quotas[tenant] = q
	}
	a.change(tenant)
}

// change puts new buckets in the place of a tenant's, if it has some. The caller holds mu.
func (a *accounts) change(tenant string) {
	if t := a.byName[tenant]; t != nil {
		t.quota.Swap(a.newQuota(tenant)).retire()
	}
}

// newQuota returns full buckets for a tenant. The caller holds mu.
func (a *accounts) newQuota(tenant string) *quota {
	q, own := a.quotas[tenant]
	if !own {
		q = a.standard
	}
	return newQuota(q, a.burst, a.now)
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
		t.quota.Store(a.newQuota(tenant))
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
