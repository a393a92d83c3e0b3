package admin

import (
	"errors"
	"net/http"

	"felix/netio"
)

// Quotas are the publish quotas of tenants, which *netio.Server has.
type Quotas interface {
	Quota(tenant string) (q netio.Quota, from string)
	SetQuota(tenant string, q netio.Quota) error
	UnsetQuota(tenant string)
}

// Quota is the JSON of a tenant's publish quota on this broker. 0 bounds nothing.
type Quota struct {
	TenantID    string `json:"tenant_id"`
	BytesPerSec int64  `json:"bytes_per_sec"`
	MsgsPerSec  int64  `json:"msgs_per_sec"`
	From        string `json:"from"` // default, configured, or set: here, until the broker ends
}

// quotaRequest is the body of a PUT. What is left out is 0.
type quotaRequest struct {
	BytesPerSec int64 `json:"bytes_per_sec"`
	MsgsPerSec  int64 `json:"msgs_per_sec"`
}

// tenantOf returns the tenant of the path. It has answered when there is none.
func (s *Server) tenantOf(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	t, err := s.config.Catalog.Tenant(r.PathValue("tenant"))
	if err != nil {
		answerError(w, err)
		return "", false
	}
	return t.Name, true
}

func (s *Server) answerQuota(w http.ResponseWriter, tenant string) {
	q, from := s.config.Quotas.Quota(tenant)
	writeJSON(w, http.StatusOK, Quota{TenantID: tenant, BytesPerSec: q.BytesPerSec, MsgsPerSec: q.MsgsPerSec, From: from})
}

func (s *Server) getQuota(w http.ResponseWriter, r *http.Request) {
	if tenant, ok := s.tenantOf(w, r); ok {
		s.answerQuota(w, tenant)
	}
}

func (s *Server) putQuota(w http.ResponseWriter, r *http.Request) {
	var body quotaRequest
	tenant, ok := s.tenantOf(w, r)
	if !ok || !readBody(w, r, &body) {
		return
	}
	err := s.config.Quotas.SetQuota(tenant, netio.Quota{BytesPerSec: body.BytesPerSec, MsgsPerSec: body.MsgsPerSec})
	switch {
	case errors.Is(err, netio.ErrTooManyQuotas):
		writeError(w, http.StatusConflict, "limit_exceeded", err.Error())
	case err != nil:
		writeError(w, http.StatusBadRequest, "invalid_request", err.Error())
	default:
		s.answerQuota(w, tenant)
	}
}

func (s *Server) deleteQuota(w http.ResponseWriter, r *http.Request) {
	if tenant, ok := s.tenantOf(w, r); ok {
		s.config.Quotas.UnsetQuota(tenant)
		w.WriteHeader(http.StatusNoContent)
	}
}
