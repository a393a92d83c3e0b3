package netio

import (
	"errors"
	"fmt"

	"felix/netio/wire"
	"felix/replicate"
)

const (
	// serverFlags are the frame layouts this broker writes and reads (WIRE section 19).
	serverFlags = wire.FlagPublishBatch | wire.FlagEventBatch | wire.FlagEventBatchShared | wire.FlagPublishAcked | wire.FlagPublishAck |
		wire.FlagEventOffsets | wire.FlagPublishKeyed | wire.FlagPublishIdempotent | wire.FlagAckCode | wire.FlagAckDetail | wire.FlagAckOffset

	// serverFeatures are the requests and behaviours this broker serves.
	serverFeatures = wire.FeatureTopology | wire.FeatureStreamShards | wire.FeatureIdempotentProducer | wire.FeatureErrorCodes |
		wire.FeatureUnsupported | wire.FeatureSequenceReused | wire.FeaturePublishPipeline | wire.FeatureStreamPublishWindow |
		wire.FeatureShardOwners | wire.FeatureAckOnCommit | wire.FeatureSubscribeQueue | wire.FeatureStreamRead |
		// A broker promises offset_for_time with it. Times on group records are sent to clients that offer it, once there are groups.
		wire.FeatureRecordTimestamps |
		wire.FeatureInspect | wire.FeatureSubscriptionLagged | wire.FeatureStreamDeleted | wire.FeaturePublishWidth | wire.FeatureExplicitShard

	pipelineFeatures = wire.FeaturePublishPipeline | wire.FeatureStreamPublishWindow
)

// authenticate takes the first frame of a stream. Any other frame than auth ends it.
func (st *stream) authenticate(h wire.Header, body []byte) error {
	server := st.conn.server
	if h.Flags != 0 {
		return st.authFailed(wire.CodeUnauthenticated, fmt.Sprintf("a stream begins with auth, not with a frame with flags %#04x", uint16(h.Flags)))
	}
	m, err := wire.ParseMessage(body)
	if err != nil {
		st.sawMalformed(err)
		st.refuse(wire.CodeInvalidRequest, err.Error())
		return errEndStream
	}
	auth, ok := m.(*wire.Auth)
	if !ok {
		return st.authFailed(wire.CodeUnauthenticated, fmt.Sprintf("a stream begins with auth, not with %s", brief(m.MessageType())))
	}
	// Read the offer before anything is refused: it says which errors the client can read.
	st.flags = auth.OfferedFlags()
	if auth.HasClientFeatures {
		st.features = auth.ClientFeatures
	}
	if server.draining.Load() {
		st.refuse(wire.CodeDraining, "broker is shutting down; connect to another one")
		return errEndStream
	}
	if n := len(auth.TenantID); n > replicate.MaxNameBytes {
		return st.authFailed(wire.CodeInvalidRequest, fmt.Sprintf("tenant_id has %d bytes, and names have at most %d", n, replicate.MaxNameBytes))
	}
	if err := st.conn.verify(auth.TenantID, auth.Token); err != nil {
		code := wire.CodeUnauthenticated
		if errors.Is(err, ErrForbidden) {
			code = wire.CodeForbidden
		}
		return st.authFailed(code, err.Error())
	}
	st.tenant = auth.TenantID
	st.tenantID = wire.KeyHash([]byte(auth.TenantID))
	st.account = server.accounts.enter(auth.TenantID)
	st.authenticated.Store(true)
	st.conn.ticket.authenticate()
	if st.send == nil {
		return nil
	}
	if !auth.HasClientFlags {
		return st.reply(&wire.OK{})
	}
	return st.reply(st.authOK(auth))
}

// authFailed refuses the stream.
func (st *stream) authFailed(code wire.Code, why string) error {
	st.conn.server.counts.authFailures.Add(1)
	st.say(logAuth, why)
	st.refuse(code, why)
	return errEndStream
}

// authOK says what is served, and nothing that the client did not offer to read.
func (st *stream) authOK(auth *wire.Auth) *wire.AuthOK {
	server := st.conn.server
	m := &wire.AuthOK{ServerFlags: serverFlags & auth.ClientFlags}
	if server.announced() {
		m.ListenerPorts = server.ports
	}
	if !auth.HasClientFeatures {
		return m
	}
	served := serverFeatures
	if server.limits.PublishWindow > 0 && auth.ClientFeatures.Has(wire.FeaturePublishPipeline) {
		m.PublishWindow, m.HasPublishWindow = uint32(server.limits.PublishWindow), true
	} else if server.limits.PublishWindow < 0 {
		served &^= pipelineFeatures
	}
	m.ServerFeatures, m.HasServerFeatures = served.For(auth.ClientFeatures), true
	return m
}
