package admin

import (
	"errors"
	"testing"

	"felix/netio"
)

// fakeQuotas has a quota for every tenant and one tenant to set it for.
type fakeQuotas struct{ set map[string]netio.Quota }

func (f *fakeQuotas) Quota(tenant string) (netio.Quota, string) {
	if q, ok := f.set[tenant]; ok {
		return q, netio.QuotaSet
	}
	return netio.Quota{BytesPerSec: 7}, netio.QuotaDefault
}

func (f *fakeQuotas) SetQuota(tenant string, q netio.Quota) error {
	switch {
	case q.BytesPerSec < 0:
		return errors.New("bytes below 0")
	case len(f.set) > 0:
		return netio.ErrTooManyQuotas
	}
	f.set[tenant] = q
	return nil
}

func (f *fakeQuotas) UnsetQuota(tenant string) { delete(f.set, tenant) }

func TestQuota(t *testing.T) {
	f := newFixture(t)
	f.server.config.Quotas = &fakeQuotas{set: map[string]netio.Quota{}}
	const path = "/v1/tenants/t1/quota"
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		f.refused(method, path, `{}`, 404, "not_found", "t1")
	}
	f.scope()
	f.want("GET", path, "", 200, `{"tenant_id":"t1","bytes_per_sec":7,"msgs_per_sec":0,"from":"default"}`)
	f.want("PUT", path, `{"bytes_per_sec":1000,"msgs_per_sec":10}`, 200, `{"tenant_id":"t1","bytes_per_sec":1000,"msgs_per_sec":10,"from":"set"}`)
	f.want("GET", path, "", 200, `{"tenant_id":"t1","bytes_per_sec":1000,"msgs_per_sec":10,"from":"set"}`)
	f.refused("PUT", path, `{"bytes_per_sec":1}`, 409, "limit_exceeded", "take one back")
	f.refused("PUT", path, `{"bytes_per_sec":-1}`, 400, "invalid_request", "below 0")
	f.refused("PUT", path, `{"bytes":1}`, 400, "invalid_request", `"bytes"`)
	f.refused("POST", path, `{}`, 405, "method_not_allowed", "GET, PUT, DELETE")
	f.want("DELETE", path, "", 204, "")
	f.want("GET", path, "", 200, `{"tenant_id":"t1","bytes_per_sec":7,"msgs_per_sec":0,"from":"default"}`)
}
