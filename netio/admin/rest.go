package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"felix/core"
	"felix/fanout"
	"felix/netio/wire"
	"felix/replicate"
	"felix/wal"
)

// Tenant is the JSON of a tenant.
type Tenant struct {
	TenantID    string `json:"tenant_id"`
	DisplayName string `json:"display_name"`
}

// Namespace is the JSON of a namespace.
type Namespace struct {
	Namespace   string `json:"namespace"`
	DisplayName string `json:"display_name"`
}

// Stream is the JSON of a stream, as it is answered.
type Stream struct {
	Stream            string     `json:"stream"`
	Kind              string     `json:"kind"`
	Shards            uint32     `json:"shards"`
	ReplicationFactor uint32     `json:"replication_factor"`
	Retention         *Retention `json:"retention,omitempty"` // absent: the broker's setting
	Consistency       string     `json:"consistency"`
	Delivery          string     `json:"delivery"`
	Durable           bool       `json:"durable"`
	Region            string     `json:"region,omitempty"`
	Routing           string     `json:"routing,omitempty"` // jump_hash; absent: modulo
	OnSlow            string     `json:"on_slow"`
	FsyncMode         string     `json:"fsync_mode,omitempty"`  // of a durable stream
	ShedFrames        uint64     `json:"shed_frames,omitempty"` // publishes without ack dropped at the door since the start, and their records
	ShedRecords       uint64     `json:"shed_records,omitempty"`
}

// Retention is the JSON of what a stream keeps. An absent bound is the broker's setting.
type Retention struct {
	MaxAgeSeconds uint64 `json:"max_age_seconds,omitempty"`
	MaxSizeBytes  uint64 `json:"max_size_bytes,omitempty"`
}

// streamRequest is the body of a POST. Pointers tell what was left out.
type streamRequest struct {
	Stream            string            `json:"stream"`
	Kind              *string           `json:"kind"`
	Shards            *uint32           `json:"shards"`
	ReplicationFactor *uint32           `json:"replication_factor"`
	Retention         *retentionRequest `json:"retention"`
	Consistency       *string           `json:"consistency"`
	Delivery          *string           `json:"delivery"`
	Durable           *bool             `json:"durable"`
	Region            *string           `json:"region"`
	Routing           *string           `json:"routing"`
	OnSlow            *string           `json:"on_slow"`
	FsyncMode         *string           `json:"fsync_mode"`
}

type retentionRequest struct {
	MaxAgeSeconds *uint64 `json:"max_age_seconds"`
	MaxSizeBytes  *uint64 `json:"max_size_bytes"`
}

// list is the JSON of every list.
type list[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}

func (s *Server) listTenants(w http.ResponseWriter, r *http.Request) {
	answerList(w, r, s.config.Catalog.Tenants, tenantJSON)
}

func (s *Server) createTenant(w http.ResponseWriter, r *http.Request) {
	var body Tenant
	if !readBody(w, r, &body) {
		return
	}
	t, created, err := s.config.Catalog.CreateTenant(r.Context(), body.TenantID, body.DisplayName)
	answerCreated(w, created, tenantJSON(t), err)
}

func (s *Server) getTenant(w http.ResponseWriter, r *http.Request) {
	t, err := s.config.Catalog.Tenant(r.PathValue("tenant"))
	answerOne(w, tenantJSON(t), err)
}

func (s *Server) deleteTenant(w http.ResponseWriter, r *http.Request) {
	answerDeleted(w, s.config.Catalog.DeleteTenant(r.Context(), r.PathValue("tenant")))
}

func (s *Server) listNamespaces(w http.ResponseWriter, r *http.Request) {
	answerList(w, r, func(p replicate.Page) ([]replicate.Namespace, string, error) {
		return s.config.Catalog.Namespaces(r.PathValue("tenant"), p)
	}, namespaceJSON)
}

func (s *Server) createNamespace(w http.ResponseWriter, r *http.Request) {
	var body Namespace
	if !readBody(w, r, &body) {
		return
	}
	n, created, err := s.config.Catalog.CreateNamespace(r.Context(), r.PathValue("tenant"), body.Namespace, body.DisplayName)
	answerCreated(w, created, namespaceJSON(n), err)
}

func (s *Server) getNamespace(w http.ResponseWriter, r *http.Request) {
	n, err := s.config.Catalog.Namespace(r.PathValue("tenant"), r.PathValue("namespace"))
	answerOne(w, namespaceJSON(n), err)
}

func (s *Server) deleteNamespace(w http.ResponseWriter, r *http.Request) {
	answerDeleted(w, s.config.Catalog.DeleteNamespace(r.Context(), r.PathValue("tenant"), r.PathValue("namespace")))
}

func (s *Server) listStreams(w http.ResponseWriter, r *http.Request) {
	answerList(w, r, func(p replicate.Page) ([]*replicate.Stream, string, error) {
		return s.config.Catalog.Streams(r.PathValue("tenant"), r.PathValue("namespace"), p)
	}, streamJSON)
}

func (s *Server) createStream(w http.ResponseWriter, r *http.Request) {
	var body streamRequest
	if !readBody(w, r, &body) {
		return
	}
	config, err := body.config(s.config.DefaultOnSlow)
	if err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request", err.Error())
		return
	}
	config.Tenant, config.Namespace = r.PathValue("tenant"), r.PathValue("namespace")
	stream, created, err := s.config.Catalog.CreateStream(r.Context(), config)
	if err != nil {
		answerError(w, err)
		return
	}
	answerCreated(w, created, streamJSON(stream), nil)
}

func (s *Server) getStream(w http.ResponseWriter, r *http.Request) {
	stream, err := s.config.Catalog.Stream(r.PathValue("tenant"), r.PathValue("namespace"), r.PathValue("stream"))
	if err != nil {
		answerError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, streamJSON(stream))
}

func (s *Server) patchStream(w http.ResponseWriter, r *http.Request) {
	tenant, namespace, name := r.PathValue("tenant"), r.PathValue("namespace"), r.PathValue("stream")
	var body streamRequest
	if !readBody(w, r, &body) {
		return
	}
	have, err := s.config.Catalog.Stream(tenant, namespace, name)
	if err != nil {
		answerError(w, err)
		return
	}
	patch, err := body.patch(have)
	if err != nil {
		answerError(w, err)
		return
	}
	stream, err := s.config.Catalog.PatchStream(r.Context(), tenant, namespace, name, patch)
	if err != nil {
		answerError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, streamJSON(stream))
}

func (s *Server) deleteStream(w http.ResponseWriter, r *http.Request) {
	answerDeleted(w, s.config.Catalog.DeleteStream(r.Context(), r.PathValue("tenant"), r.PathValue("namespace"), r.PathValue("stream")))
}

// config makes a stream's configuration of a body. It names every problem.
func (b *streamRequest) config(onSlow fanout.Policy) (replicate.StreamConfig, error) {
	c := replicate.StreamConfig{Name: b.Stream, Shards: 1, ReplicationFactor: 1, OnSlow: onSlow}
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if b.Shards != nil {
		c.Shards = *b.Shards
		if c.Shards < 1 || c.Shards > replicate.MaxShards {
			bad("shards is %d; give a number from 1 to %d", c.Shards, replicate.MaxShards)
		}
	}
	if b.ReplicationFactor != nil {
		c.ReplicationFactor = *b.ReplicationFactor
		if c.ReplicationFactor != 1 {
			bad("replication_factor is %d, but this is one broker; give 1 or leave it out", c.ReplicationFactor)
		}
	}
	if b.Durable != nil && *b.Durable {
		c.Durable, c.OnSlow = true, fanout.CatchUp
	}
	c.FsyncGiven = b.FsyncMode != nil
	b.parseFsync(bad, c.Durable, &c.FsyncMode)
	if b.Region != nil {
		c.Region = *b.Region
	}
	parse(bad, "kind", b.Kind, replicate.ParseKind, &c.Kind, "Stream or Queue")
	parse(bad, "consistency", b.Consistency, replicate.ParseConsistency, &c.Consistency, "Leader or Quorum")
	parse(bad, "delivery", b.Delivery, replicate.ParseDelivery, &c.Delivery, "AtLeastOnce or AtMostOnce")
	parse(bad, "routing", b.Routing, wire.ParseRouting, &c.Routing, "modulo or jump_hash")
	b.parseOnSlow(bad, c.Durable, &c.OnSlow)
	c.OnSlowGiven = true
	if b.Retention != nil {
		c.Retention = b.Retention.parse(bad)
	}
	if len(problems) > 0 {
		return c, errors.New(strings.Join(problems, "; "))
	}
	return c, nil
}

// patch makes a change of a body. A fixed field may be named with the value that it has.
func (b *streamRequest) patch(have *replicate.Stream) (replicate.Patch, error) {
	var patch replicate.Patch
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	now := streamJSON(have)
	routing := have.Config.Routing.String()
	for _, fixed := range []error{
		same("stream", b.streamName(), now.Stream), same("kind", b.Kind, now.Kind), same("shards", b.Shards, now.Shards),
		same("replication_factor", b.ReplicationFactor, now.ReplicationFactor), same("consistency", b.Consistency, now.Consistency),
		same("delivery", b.Delivery, now.Delivery), same("durable", b.Durable, now.Durable), same("region", b.Region, now.Region),
		same("routing", b.Routing, routing),
	} {
		if fixed != nil {
			return patch, fixed
		}
	}
	if b.FsyncMode != nil {
		patch.FsyncMode = new(wal.Mode)
		b.parseFsync(bad, have.Config.Durable, patch.FsyncMode)
	}
	if b.OnSlow != nil {
		patch.OnSlow = new(fanout.Policy)
		b.parseOnSlow(bad, have.Config.Durable, patch.OnSlow)
	}
	if b.Retention != nil {
		retention := b.Retention.parse(bad)
		patch.Retention = &retention
	}
	if len(problems) > 0 {
		return patch, fmt.Errorf("%w: %s", replicate.ErrInvalid, strings.Join(problems, "; "))
	}
	return patch, nil
}

// streamName is the name in the body, nil when it was left out.
func (b *streamRequest) streamName() *string {
	if b.Stream == "" {
		return nil
	}
	return &b.Stream
}

// same refuses a fixed field that was given with another value than it has.
func same[T comparable](field string, given *T, have T) error {
	if given == nil || *given == have {
		return nil
	}
	return &replicate.ConflictError{Object: "the stream", Field: field, Have: fmt.Sprint(have), Want: fmt.Sprint(*given)}
}

// parse reads an optional word of a body into field.
func parse[T any](bad func(string, ...any), name string, given *string, read func(string) (T, bool), field *T, words string) {
	if given == nil {
		return
	}
	value, ok := read(*given)
	if !ok {
		bad("%s is %q; give %s", name, *given, words)
		return
	}
	*field = value
}

// parseOnSlow reads the rule for a full queue.
func (b *streamRequest) parseOnSlow(bad func(string, ...any), durable bool, field *fanout.Policy) {
	if durable {
		parse(bad, "on_slow", b.OnSlow, fanout.ParsePolicy, field, "catch_up, drop_new, drop_old or block")
	} else {
		parse(bad, "on_slow", b.OnSlow, parseMemoryPolicy, field, "drop_new, drop_old or block; catch_up reads the log of a durable stream")
	}
}

// parseFsync reads what a record waits for. A stream in memory has nothing to wait for.
func (b *streamRequest) parseFsync(bad func(string, ...any), durable bool, field *wal.Mode) {
	if b.FsyncMode != nil && !durable {
		bad("fsync_mode is %q, but the stream is in memory; leave it out, or create the stream with durable true", *b.FsyncMode)
		return
	}
	read := func(name string) (wal.Mode, bool) {
		mode, err := wal.ParseMode(name)
		return mode, err == nil
	}
	parse(bad, "fsync_mode", b.FsyncMode, read, field, "on_commit, periodic or none")
}

// parseMemoryPolicy reads a rule that an in-memory stream can have.
func parseMemoryPolicy(name string) (fanout.Policy, bool) {
	policy, ok := fanout.ParsePolicy(name)
	return policy, ok && policy != fanout.CatchUp
}

// parse reads the bounds. Zero is refused: it could mean nothing as well as everything.
func (r *retentionRequest) parse(bad func(string, ...any)) (retention replicate.Retention) {
	if r.MaxAgeSeconds != nil {
		const most = 100 * 365 * 24 * 3600
		if n := *r.MaxAgeSeconds; n == 0 || n > most {
			bad("retention.max_age_seconds is %d; give a number from 1 to %d, or leave it out for the broker's setting", n, most)
		} else {
			retention.MaxAge = time.Duration(n) * time.Second
		}
	}
	if r.MaxSizeBytes != nil {
		const most = 1 << 50
		if n := *r.MaxSizeBytes; n == 0 || n > most {
			bad("retention.max_size_bytes is %d; give a number from 1 to %d, or leave it out for the broker's setting", n, most)
		} else {
			retention.MaxSizeBytes = int64(n)
		}
	}
	return retention
}

func tenantJSON(t replicate.Tenant) Tenant {
	return Tenant{TenantID: t.Name, DisplayName: t.DisplayName}
}

func namespaceJSON(n replicate.Namespace) Namespace {
	return Namespace{Namespace: n.Name, DisplayName: n.DisplayName}
}

func streamJSON(s *replicate.Stream) Stream {
	c, settings := s.Config, s.Settings()
	answer := Stream{
		Stream:            c.Name,
		Kind:              c.Kind.String(),
		Shards:            c.Shards,
		ReplicationFactor: max(c.ReplicationFactor, 1),
		Consistency:       c.Consistency.String(),
		Delivery:          c.Delivery.String(),
		Durable:           c.Durable,
		Region:            c.Region,
		OnSlow:            settings.OnSlow.String(),
	}
	if c.Routing != wire.RoutingModulo {
		answer.Routing = c.Routing.String()
	}
	answer.ShedFrames, answer.ShedRecords = s.Shed()
	if c.Durable {
		answer.FsyncMode = settings.FsyncMode.String()
	}
	if r := settings.Retention; r != (replicate.Retention{}) {
		answer.Retention = &Retention{MaxAgeSeconds: uint64(r.MaxAge / time.Second), MaxSizeBytes: uint64(r.MaxSizeBytes)}
	}
	return answer
}

// readBody reads one JSON object into body. It has answered when it returns false.
func readBody(w http.ResponseWriter, r *http.Request, body any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(body)
	if err == nil {
		if _, err = decoder.Token(); err == io.EOF {
			return true
		}
		err = errors.New("something follows the object")
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		writeError(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes; no request here needs that much", maxBodyBytes))
		return false
	}
	writeError(w, http.StatusBadRequest, "invalid_request", "the body is no good: "+bodyProblem(err))
	return false
}

// bodyProblem says what is wrong with a body in words of the sender.
func bodyProblem(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return "it is empty; send a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends in the middle of the JSON"
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is no JSON at byte %d", syntax.Offset)
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Sprintf("it is a JSON %s; send an object", kind.Value)
	case errors.As(err, &kind):
		return fmt.Sprintf("%s is a JSON %s and cannot be one", kind.Field, kind.Value)
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Sprintf("there is no field %s; check its spelling", field)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// answerList answers with a page of what read returns.
func answerList[E, J any](w http.ResponseWriter, r *http.Request, read func(replicate.Page) ([]E, string, error), toJSON func(E) J) {
	page := replicate.Page{After: r.FormValue("cursor")}
	if text := r.FormValue("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > replicate.MaxPage {
			writeError(w, http.StatusBadRequest, "invalid_request", fmt.Sprintf("limit is %q; give a number from 1 to %d", text, replicate.MaxPage))
			return
		}
		page.Limit = limit
	}
	entries, next, err := read(page)
	if err != nil {
		answerError(w, err)
		return
	}
	answer := list[J]{Items: make([]J, 0, len(entries)), NextCursor: next}
	for _, e := range entries {
		answer.Items = append(answer.Items, toJSON(e))
	}
	writeJSON(w, http.StatusOK, answer)
}

func answerOne(w http.ResponseWriter, body any, err error) {
	if err != nil {
		answerError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, body)
}

func answerCreated(w http.ResponseWriter, created bool, body any, err error) {
	switch {
	case err != nil:
		answerError(w, err)
	case created:
		writeJSON(w, http.StatusCreated, body)
	default:
		writeJSON(w, http.StatusOK, body)
	}
}

func answerDeleted(w http.ResponseWriter, err error) {
	if err != nil {
		answerError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// answerError answers with what the catalog returned.
func answerError(w http.ResponseWriter, err error) {
	var conflict *replicate.ConflictError
	var limit *replicate.LimitError
	switch {
	case errors.As(err, &conflict):
		writeError(w, http.StatusConflict, "conflict", err.Error())
	case errors.As(err, &limit):
		writeError(w, http.StatusConflict, "limit_exceeded", err.Error())
	case errors.Is(err, replicate.ErrNotFound):
		writeError(w, http.StatusNotFound, "not_found", err.Error())
	case errors.Is(err, replicate.ErrInvalid):
		writeError(w, http.StatusBadRequest, "invalid_request", err.Error())
	case errors.Is(err, core.ErrClosed):
		writeError(w, http.StatusServiceUnavailable, "busy", "the broker is shutting down; ask another one, or this one later")
	default:
		writeError(w, http.StatusServiceUnavailable, "busy", "the catalog did not answer in time ("+err.Error()+"); try again")
	}
}
