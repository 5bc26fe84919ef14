package authn

import (
	"fmt"
	"os"
	"sync"

	"podium/pkg/client/certfile"
	"podium/pkg/client/revocation"
)

// Revocations merges the revocation lists of a file with those that other API
// servers have published. While the server runs, a revoked certificate stays
// revoked, even if a list no longer contains it. It is safe for concurrent use.
type Revocations struct {
	file        func() *revocation.List
	authorities string

	mu        sync.Mutex
	own       *revocation.List // the file's list that was merged last
	list      *revocation.List // everything ever revoked
	published *revocation.List // the list that is published now
	read      bool             // published has been set
}

// RevocationFile reads revocation lists from a file, and again when it or the
// file of the CAs changes. If a changed file is invalid, the previous lists
// stay in force and failed is called.
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

// List returns the certificates that are revoked now. It is called with each
// request.
func (r *Revocations) List() *revocation.List {
	own := r.file()
	r.mu.Lock()
	defer r.mu.Unlock()
	if own != r.own {
		r.own, r.list = own, revocation.Merge(r.list, own)
	}
	return r.list
}

// Learn merges the published list, "" if there is none. It skips lists that no
// client CA has signed and returns an error for them.
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

// Unpublished returns the list to publish, and whether the published one lacks
// revocations that this server has. It returns false until Learn has been
// called. It only ever adds to the published list.
func (r *Revocations) Unpublished() (text string, lacking bool) {
	list := r.List()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read || r.published.Covers(list) {
		return "", false
	}
	return string(list.PEM()), true
}
