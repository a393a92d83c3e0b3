package admin

import (
	"fmt"
	"strings"
	"testing"
)

const streams = "/v1/tenants/t1/namespaces/n1/streams"

// scope creates t1/n1.
func (f *fixture) scope() {
	f.t.Helper()
	f.want("POST", "/v1/tenants", `{"tenant_id":"t1","display_name":"Tenant <1>"}`, 201, `{"tenant_id":"t1","display_name":"Tenant <1>"}`)
	f.want("POST", "/v1/tenants/t1/namespaces", `{"namespace":"n1","display_name":"N"}`, 201, `{"namespace":"n1","display_name":"N"}`)
}

func TestTenants(t *testing.T) {
	f := newFixture(t)
	f.want("GET", "/v1/tenants", "", 200, `{"items":[]}`)
	f.scope()
	f.want("POST", "/v1/tenants", `{"tenant_id":"t1","display_name":"Tenant <1>"}`, 200, `{"tenant_id":"t1","display_name":"Tenant <1>"}`)
	f.want("GET", "/v1/tenants/t1", "", 200, `{"tenant_id":"t1","display_name":"Tenant <1>"}`)
	f.refused("POST", "/v1/tenants", `{"tenant_id":"t1","display_name":"other"}`, 409, "conflict", "t1")
	f.refused("POST", "/v1/tenants", `{"tenant_id":"../x"}`, 400, "invalid_request", "../x")
	f.refused("POST", "/v1/tenants", `{}`, 400, "invalid_request", "empty")
	f.refused("GET", "/v1/tenants/none", "", 404, "not_found", "none")
	f.want("DELETE", "/v1/tenants/t1", "", 204, "")
	f.refused("DELETE", "/v1/tenants/t1", "", 404, "not_found", "t1")
	f.refused("GET", "/v1/tenants/t1/namespaces", "", 404, "not_found", "t1")
}

func TestNamespaces(t *testing.T) {
	f := newFixture(t)
	f.refused("POST", "/v1/tenants/t1/namespaces", `{"namespace":"n1"}`, 404, "not_found", "t1")
	f.scope()
	f.want("GET", "/v1/tenants/t1/namespaces", "", 200, `{"items":[{"namespace":"n1","display_name":"N"}]}`)
	f.want("GET", "/v1/tenants/t1/namespaces/n1", "", 200, `{"namespace":"n1","display_name":"N"}`)
	f.want("DELETE", "/v1/tenants/t1/namespaces/n1", "", 204, "")
	f.refused("GET", "/v1/tenants/t1/namespaces/n1", "", 404, "not_found", "n1")
	f.refused("GET", streams, "", 404, "not_found", "n1")
}

func TestStreams(t *testing.T) {
	f := newFixture(t)
	f.refused("POST", streams, `{"stream":"s"}`, 404, "not_found", "t1")
	f.scope()
	const plain = `{"stream":"s","kind":"Stream","shards":1,"replication_factor":1,"consistency":"Leader","delivery":"AtLeastOnce","durable":false,"on_slow":"drop_new"}`
	f.want("POST", streams, `{"stream":"s"}`, 201, plain)
	f.want("POST", streams, `{"stream":"s"}`, 200, plain)
	f.want("GET", streams+"/s", "", 200, plain)
	f.refused("POST", streams, `{"stream":"s","shards":2}`, 409, "conflict", "shards", "1", "2")

	const full = `{"stream":"q","kind":"Queue","shards":8,"replication_factor":1,"retention":{"max_age_seconds":60,"max_size_bytes":1048576},"consistency":"Quorum","delivery":"AtMostOnce","durable":false,"region":"eu","routing":"jump_hash","on_slow":"block"}`
	f.want("POST", streams, full, 201, full)
	f.want("GET", streams, "", 200, `{"items":[`+full+`,`+plain+`]}`)

	f.want("PATCH", streams+"/s", `{"on_slow":"drop_old","shards":1,"retention":{"max_age_seconds":5}}`, 200,
		`{"stream":"s","kind":"Stream","shards":1,"replication_factor":1,"retention":{"max_age_seconds":5},"consistency":"Leader","delivery":"AtLeastOnce","durable":false,"on_slow":"drop_old"}`)
	f.refused("PATCH", streams+"/s", `{"shards":2}`, 409, "conflict", "shards", "1", "2")
	f.refused("PATCH", streams+"/s", `{"stream":"other"}`, 409, "conflict", "stream")
	f.refused("PATCH", streams+"/s", `{"routing":"jump_hash"}`, 409, "conflict", "routing", "modulo")
	f.refused("PATCH", streams+"/s", `{"on_slow":"catch_up"}`, 400, "invalid_request", "drop_new, drop_old or block")
	f.refused("PATCH", streams+"/s", `{"retention":{"max_age_seconds":0}}`, 400, "invalid_request", "leave it out")
	f.refused("PATCH", streams+"/none", `{"on_slow":"block"}`, 404, "not_found", "none")

	f.want("DELETE", streams+"/s", "", 204, "")
	f.refused("GET", streams+"/s", "", 404, "not_found", "s")
	f.refused("DELETE", streams+"/s", "", 404, "not_found", "s")
	f.want("POST", streams, `{"stream":"s"}`, 201, plain)
}

// TestDurableStreams makes streams that are kept in a log, and changes them.
func TestDurableStreams(t *testing.T) {
	f := startFixture(t, true)
	f.scope()
	const plain = `{"stream":"s","kind":"Stream","shards":1,"replication_factor":1,"consistency":"Leader","delivery":"AtLeastOnce","durable":true,"on_slow":"catch_up","fsync_mode":"on_commit"}`
	f.want("POST", streams, `{"stream":"s","durable":true}`, 201, plain)
	f.want("POST", streams, `{"stream":"s","durable":true}`, 200, plain)
	f.want("POST", streams, plain, 200, plain)
	f.want("GET", streams+"/s", "", 200, plain)
	f.refused("POST", streams, `{"stream":"s"}`, 409, "conflict", "durable", "true")
	f.refused("POST", streams, `{"stream":"s","durable":true,"fsync_mode":"none"}`, 409, "conflict", "fsync mode", "on_commit", "none")

	const full = `{"stream":"q","kind":"Stream","shards":2,"replication_factor":1,"retention":{"max_age_seconds":60,"max_size_bytes":1048576},"consistency":"Leader","delivery":"AtLeastOnce","durable":true,"on_slow":"drop_new","fsync_mode":"periodic"}`
	f.want("POST", streams, full, 201, full)
	f.want("GET", streams, "", 200, `{"items":[`+full+`,`+plain+`]}`)

	f.want("PATCH", streams+"/s", `{"fsync_mode":"none","on_slow":"block","durable":true,"retention":{"max_size_bytes":4096}}`, 200,
		`{"stream":"s","kind":"Stream","shards":1,"replication_factor":1,"retention":{"max_size_bytes":4096},"consistency":"Leader","delivery":"AtLeastOnce","durable":true,"on_slow":"block","fsync_mode":"none"}`)
	f.want("PATCH", streams+"/s", `{"on_slow":"catch_up","fsync_mode":"on_commit"}`, 200, strings.Replace(plain, `"consistency"`, `"retention":{"max_size_bytes":4096},"consistency"`, 1))
	f.refused("PATCH", streams+"/s", `{"fsync_mode":"often"}`, 400, "invalid_request", "on_commit, periodic or none")
	f.refused("PATCH", streams+"/s", `{"on_slow":"x"}`, 400, "invalid_request", "catch_up, drop_new, drop_old or block")
	f.refused("PATCH", streams+"/s", `{"durable":false}`, 409, "conflict", "durable")

	f.do("POST", streams, `{"stream":"m"}`)
	f.refused("PATCH", streams+"/m", `{"fsync_mode":"none"}`, 400, "invalid_request", "in memory")
	f.want("DELETE", streams+"/s", "", 204, "")
}

func TestStreamRefused(t *testing.T) {
	f := newFixture(t)
	f.scope()
	for body, words := range map[string][]string{
		`{}`:               {"empty"},
		`{"stream":""}`:    {"empty"},
		`{"stream":"."}`:   {"letter or digit"},
		`{"stream":"ünï"}`: {"letter or digit"},
		`{"stream":"a b"}`: {"letters, digits"},
		`{"stream":"` + strings.Repeat("x", 129) + `"}`:                      {"128"},
		`{"stream":"s","shards":0}`:                                          {"shards is 0; give a number from 1 to 1024"},
		`{"stream":"s","shards":1025}`:                                       {"shards is 1025"},
		`{"stream":"s","shards":-1}`:                                         {"shards is a JSON number"},
		`{"stream":"s","shards":1.5}`:                                        {"shards is a JSON number"},
		`{"stream":"s","durable":true}`:                                      {"durable is true, and this broker has no log"},
		`{"stream":"s","fsync_mode":"none"}`:                                 {`fsync_mode is "none", but the stream is in memory`},
		`{"stream":"s","durable":true,"fsync_mode":"often"}`:                 {"on_commit, periodic or none"},
		`{"stream":"s","durable":true,"on_slow":"x"}`:                        {"catch_up, drop_new, drop_old or block"},
		`{"stream":"s","replication_factor":3}`:                              {"replication_factor is 3, but this is one broker"},
		`{"stream":"s","kind":"Topic"}`:                                      {`kind is "Topic"; give Stream or Queue`},
		`{"stream":"s","consistency":"x"}`:                                   {"Leader or Quorum"},
		`{"stream":"s","delivery":"x"}`:                                      {"AtLeastOnce or AtMostOnce"},
		`{"stream":"s","routing":"x"}`:                                       {"modulo or jump_hash"},
		`{"stream":"s","on_slow":"catch_up"}`:                                {`on_slow is "catch_up"; give drop_new, drop_old or block`},
		`{"stream":"s","retention":{"max_age_seconds":0}}`:                   {"max_age_seconds is 0"},
		`{"stream":"s","retention":{"max_size_bytes":18446744073709551615}}`: {"max_size_bytes is 18446744073709551615"},
		`{"stream":"s","retention":{"max_age":1}}`:                           {`"max_age"`},
		`{"stream":"s","shards":0,"fsync_mode":"none","kind":"x"}`:           {"shards is 0", "fsync_mode is", "kind is"},
	} {
		f.refused("POST", streams, body, 400, "invalid_request", words...)
	}
	f.want("GET", streams, "", 200, `{"items":[]}`)
}

// TestPages reads a list in pieces and gets every item once.
func TestPages(t *testing.T) {
	f := newFixture(t)
	f.scope()
	for i := range 7 {
		f.do("POST", streams, fmt.Sprintf(`{"stream":"s%d"}`, i))
	}
	item := func(i int) string {
		return fmt.Sprintf(`{"stream":"s%d","kind":"Stream","shards":1,"replication_factor":1,"consistency":"Leader","delivery":"AtLeastOnce","durable":false,"on_slow":"drop_new"}`, i)
	}
	f.want("GET", streams+"?limit=3", "", 200, `{"items":[`+item(0)+`,`+item(1)+`,`+item(2)+`],"next_cursor":"s2"}`)
	f.want("GET", streams+"?limit=3&cursor=s2", "", 200, `{"items":[`+item(3)+`,`+item(4)+`,`+item(5)+`],"next_cursor":"s5"}`)
	f.want("GET", streams+"?limit=3&cursor=s5", "", 200, `{"items":[`+item(6)+`]}`)
	for _, limit := range []string{"0", "-1", "10001", "x"} {
		f.refused("GET", streams+"?limit="+limit, "", 400, "invalid_request", "1 to 10000")
	}
}
