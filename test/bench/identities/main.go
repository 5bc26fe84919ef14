// Command identities makes what a measured kube-apiserver needs to serve TLS
// and to know its client: a CA, a serving and an admin certificate, and the
// key for service account tokens.
package main

import (
	"errors"
	"flag"
	"log"
	"time"

	"podium/pkg/cluster/pki"
)

func main() {
	dir := flag.String("dir", ".", "where to put them")
	flag.Parse()
	ca, err := pki.OpenAuthority(*dir, "ca", time.Now)
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		ca.Issue(*dir, "apiserver", pki.Identity{Name: "kube-apiserver", Hosts: []string{"127.0.0.1"}}),
		ca.Issue(*dir, "admin", pki.Identity{Name: "kubernetes-admin", Groups: []string{"system:masters"}}),
		pki.SigningKey(*dir, "sa"),
	)
	if err != nil {
		log.Fatal(err)
	}
}
