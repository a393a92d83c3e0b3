package main

import (
	"fmt"
	"io"
	"strings"

	"felix"
)

// printBanner tells a person where the broker is and what to type next, in at most 12 lines. found says that the
// felix command finds the broker by itself.
func printBanner(w io.Writer, broker *felix.Broker, found bool) {
	ready := broker.Ready()
	listen := ready.Listen
	if len(ready.Ports) > 0 {
		listen += ", own ports " + strings.Trim(fmt.Sprint(ready.Ports), "[]")
	}
	admin := "off"
	if ready.Admin != "" {
		admin = "http://" + ready.Admin
	}
	cores, pinned := broker.Cores()
	kind := "cores"
	if pinned {
		kind = "pinned cores"
	}
	target := ""
	if !found {
		target = fmt.Sprintf(" --server %s --ca %s", ready.Listen, ready.CAFile)
	}
	fmt.Fprintf(w, `felixd %s
  listen       %s (%d %s)
  admin        %s
  durability   %s
  data         %s
  certificate  %s
               %s
  tokens       any token is accepted
  subscribe    felix sub orders --from earliest%s
  publish      felix pub orders hello%s
`, felix.Version(), listen, cores, kind, admin, broker.Durability(), broker.DataDir(), broker.CertificateText(), ready.CAFile, target, target)
}
