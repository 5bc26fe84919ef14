package authn

import (
	"fmt"
	"os"
	"sync"

	"podium/pkg/client/certfile"
	"podium/pkg/client/revocation"
)

// Revocations are the lists of a file together with those that other API
// servers have published. Nothing that was revoked once is un-revoked while the
// server runs.
type Revocations struct {
	file        func() *revocation.List
	authorities string

	mu        sync.Mutex
	own       *revocation.List // the file's, as merged last
	list      *revocation.List // all that was ever seen
	published *revocation.List // what other daemons read at present
	read      bool             // published is known
}

// RevocationFile reads lists from a file, and again whenever it or the file
// with the authorities changes. While what is there cannot be read, what was
// there before stays in force, and failed is told.
func RevocationFile(file, authorities string, failed func(error)) (*Revocations, error) {
	started := false
	load := func() (*revocation.List, error) {
		r, err := readRevocations(file, authorities)
		if err != nil && started {
			failed(err)
		}
		return r, err
	}
	value, err := certfile.NewValue(load, file, authorities)
	if err != nil {
		return nil, err
	}
	started = true
	return &Revocations{file: value.Get, authorities: authorities}, nil
}

func readRevocations(file, authorities string) (*revocation.List, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pemCAs, err := os.ReadFile(authorities)
	if err != nil {
		return nil, err
	}
	r, err := revocation.Parse(data, revocation.ParseCertificates(pemCAs))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// List is what is revoked at present. It is asked with each request.
func (r *Revocations) List() *revocation.List {
	own := r.file()
	r.mu.Lock()
	defer r.mu.Unlock()
	if own != r.own {
		r.own, r.list = own, revocation.Merge(r.list, own)
	}
	return r.list
}

// Learn takes what is published; "" if nothing is. What no authority of the
// clients has signed is left out, with an error.
func (r *Revocations) Learn(text string) error {
	pemCAs, err := os.ReadFile(r.authorities)
	if err != nil {
		return err
	}
	published, err := revocation.Parse([]byte(text), revocation.ParseCertificates(pemCAs))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published, r.read = published, true
	r.list = revocation.Merge(r.list, published)
	return err
}

// Unpublished is what must be published, if other daemons lack something. What
// this server knows is only ever added: it does not take away what it cannot
// verify.
func (r *Revocations) Unpublished() (text string, lacking bool) {
	list := r.List()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read || r.published.Covers(list) {
		return "", false
	}
	return string(list.PEM()), true
}
