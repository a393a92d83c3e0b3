package wire

import "strconv"

// Code says what went wrong. Clients act on the Retry class; the code tells people and metrics why.
type Code uint16

// The codes of WIRE.md section 14. 0 is never sent; it stands for no code, or for a name that this package does not know.
const (
	CodeUnauthenticated  Code = 1
	CodeForbidden        Code = 2
	CodeNotFound         Code = 3
	CodeInvalidRequest   Code = 4
	CodeShardUnavailable Code = 5
	CodeNotLeader        Code = 6
	CodeQuorumTimeout    Code = 7
	CodeLeadershipLost   Code = 8
	CodeUnacknowledged   Code = 9
	CodeOverloaded       Code = 10
	CodeLimitExceeded    Code = 11
	CodeDraining         Code = 12
	CodeInternal         Code = 13
	CodeStorage          Code = 14
	CodeStaleClaim       Code = 15
	CodeRevoked          Code = 16
	CodeStaleWidth       Code = 17
)

// Retry is what a client may do after a failure.
type Retry uint8

const (
	RetryRetry          Retry = 1 // nothing was applied: try again, elsewhere first
	RetryAfter          Retry = 2 // nothing was applied: try again after the wait
	RetryRedirect       Retry = 3 // nothing was applied: another broker owns the shard
	RetryOutcomeUnknown Retry = 4 // it may have been applied
	RetryFatal          Retry = 5 // nothing was applied, and trying again will not help
)

// Reasons in the detail of an error. ReasonPublishQueueFull and ReasonTenantQuota go with CodeOverloaded, the others with
// CodeShardUnavailable.
const (
	ReasonNotAssigned       = "not_assigned"
	ReasonOwnerUnavailable  = "owner_unavailable"
	ReasonNotReady          = "not_ready"
	ReasonStale             = "stale"
	ReasonFenced            = "fenced"
	ReasonMoving            = "moving"
	ReasonRegionNotRoutable = "region_not_routable"
	ReasonPublishQueueFull  = "publish_queue_full"
	ReasonTenantQuota       = "tenant_quota"
)

// codes is indexed by Code.
var codes = [...]struct {
	name  string
	retry Retry
}{
	CodeUnauthenticated:  {"unauthenticated", RetryFatal},
	CodeForbidden:        {"forbidden", RetryFatal},
	CodeNotFound:         {"not_found", RetryAfter},
	CodeInvalidRequest:   {"invalid_request", RetryFatal},
	CodeShardUnavailable: {"shard_unavailable", RetryRetry},
	CodeNotLeader:        {"not_leader", RetryRedirect},
	CodeQuorumTimeout:    {"quorum_timeout", RetryOutcomeUnknown},
	CodeLeadershipLost:   {"leadership_lost", RetryOutcomeUnknown},
	CodeUnacknowledged:   {"unacknowledged", RetryOutcomeUnknown},
	CodeOverloaded:       {"overloaded", RetryAfter},
	CodeLimitExceeded:    {"limit_exceeded", RetryFatal},
	CodeDraining:         {"draining", RetryRetry},
	CodeInternal:         {"internal", RetryOutcomeUnknown},
	CodeStorage:          {"storage", RetryOutcomeUnknown},
	CodeStaleClaim:       {"stale_claim", RetryRetry},
	CodeRevoked:          {"revoked", RetryFatal},
	CodeStaleWidth:       {"stale_width", RetryRetry},
}

var retryNames = [...]string{
	RetryRetry: "retry", RetryAfter: "retry_after", RetryRedirect: "redirect", RetryOutcomeUnknown: "outcome_unknown", RetryFatal: "fatal",
}

// Known reports whether the code is one of the constants.
func (c Code) Known() bool { return c > 0 && int(c) < len(codes) }

// String returns the name in JSON, and "code_N" for a number without a name.
func (c Code) String() string {
	if !c.Known() {
		return "code_" + strconv.Itoa(int(c))
	}
	return codes[c].name
}

// ParseCode returns the code with this name in JSON; false when there is none.
func ParseCode(name string) (Code, bool) {
	for c := CodeUnauthenticated; int(c) < len(codes); c++ {
		if codes[c].name == name {
			return c, true
		}
	}
	return 0, false
}

// DefaultRetry returns the class that goes with the code where nothing more is known. For an unknown code it is RetryFatal.
func (c Code) DefaultRetry() Retry {
	if !c.Known() {
		return RetryFatal
	}
	return codes[c].retry
}

// String returns the name in JSON. An unknown class reads as fatal.
func (r Retry) String() string { return retryNames[r.orFatal()] }

// ParseRetry returns the class with this name in JSON. An unknown one is RetryFatal.
func ParseRetry(name string) Retry {
	for r := RetryRetry; r <= RetryFatal; r++ {
		if retryNames[r] == name {
			return r
		}
	}
	return RetryFatal
}

func (r Retry) orFatal() Retry {
	if r < RetryRetry || r > RetryFatal {
		return RetryFatal
	}
	return r
}
