package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"felix/netio"
	"felix/netio/wire"
)

// Subscription is the JSON of a subscription. Dropped, position, tail and lag_records count records.
type Subscription struct {
	Stream         string `json:"stream"`
	Shard          uint32 `json:"shard"`
	SubscriberID   uint64 `json:"subscriber_id"`
	SubscriptionID uint64 `json:"subscription_id"` // on its connection
	Connection     uint64 `json:"connection"`
	Peer           string `json:"peer"`
	State          string `json:"state"`  // joining, live, catching_up, blocked, blocked_by_peer or ended
	Policy         string `json:"policy"` // the rule for a full queue, by its name in the catalog
	Depth          int    `json:"depth"`  // frames queued
	Capacity       int    `json:"capacity"`
	Dropped        uint64 `json:"dropped"`
	Position       uint64 `json:"position"`
	Tail           uint64 `json:"tail"`
	LagRecords     uint64 `json:"lag_records"`
	LagBytes       uint64 `json:"lag_bytes"` // an estimate
	AgeMillis      uint64 `json:"age_ms"`
}

// listSubscriptions lists those of a namespace, or of one stream, in order of stream, shard and number.
func (s *Server) listSubscriptions(w http.ResponseWriter, r *http.Request) {
	q := netio.SubscriptionQuery{Limit: wire.MaxSubscriptionsPage}
	q.TenantID, q.Namespace, q.Stream = r.PathValue("tenant"), r.PathValue("namespace"), r.PathValue("stream")
	var err error
	if q.Stream != "" {
		_, err = s.config.Catalog.Stream(q.TenantID, q.Namespace, q.Stream)
	} else {
		_, err = s.config.Catalog.Namespace(q.TenantID, q.Namespace)
	}
	if err != nil {
		answerError(w, err)
		return
	}
	bad := func(format string, args ...any) {
		writeError(w, http.StatusBadRequest, "invalid_request", fmt.Sprintf(format, args...))
	}
	if text := r.FormValue("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > wire.MaxSubscriptionsPage {
			bad("limit is %q; give a number from 1 to %d", text, wire.MaxSubscriptionsPage)
			return
		}
	}
	if text := r.FormValue("dropping"); text != "" {
		if q.Dropping, err = strconv.ParseBool(text); err != nil {
			bad("dropping is %q; give true or false", text)
			return
		}
	}
	if text := r.FormValue("cursor"); text != "" {
		if q.HasAfter = parseCursor(text, &q.After); !q.HasAfter {
			bad("cursor is %q; give the next_cursor of a page of this list", text)
			return
		}
		q.After.TenantID, q.After.Namespace = q.TenantID, q.Namespace
	}
	page, more, err := s.config.Subscriptions(r.Context(), q)
	if err != nil {
		answerError(w, err)
		return
	}
	answer := list[Subscription]{Items: make([]Subscription, len(page))}
	for i := range page {
		answer.Items[i] = subscriptionJSON(&page[i])
	}
	if more {
		answer.NextCursor = formatCursor(page[len(page)-1].SubscriptionCursor)
	}
	writeJSON(w, http.StatusOK, answer)
}

func subscriptionJSON(i *netio.SubscriptionInfo) Subscription {
	return Subscription{
		Stream: i.Stream, Shard: i.Shard, SubscriberID: i.SubscriberID, SubscriptionID: i.SubscriptionID, Connection: i.Connection, Peer: i.Peer,
		State: i.State, Policy: i.Policy.String(), Depth: i.Depth, Capacity: i.Capacity, Dropped: i.Dropped,
		Position: uint64(i.Position), Tail: uint64(i.Tail), LagRecords: i.LagRecords, LagBytes: i.LagBytes, AgeMillis: uint64(max(i.Age, 0) / time.Millisecond),
	}
}

// formatCursor is the place behind a subscription: stream/shard/number, in the tenant and namespace of the request.
func formatCursor(c wire.SubscriptionCursor) string {
	return fmt.Sprintf("%s/%d/%d", c.Stream, c.Shard, c.SubscriberID)
}

func parseCursor(text string, c *wire.SubscriptionCursor) bool {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return false
	}
	shard, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return false
	}
	c.Stream, c.Shard = parts[0], uint32(shard)
	c.SubscriberID, err = strconv.ParseUint(parts[2], 10, 64)
	return err == nil
}
