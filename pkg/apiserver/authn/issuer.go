package authn

import (
	"cmp"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"podium/pkg/client/jwtkey"
)

// The OpenID Connect discovery pages of the service account issuer.
//
// https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery
const (
	IssuerPath = "/.well-known/openid-configuration"
	KeysPath   = "/openid/v1/jwks"
)

// IssuerDocument is the OpenID Connect discovery document of the issuer.
type IssuerDocument struct {
	Issuer        string   `json:"issuer"`
	KeysURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// Issuer returns the discovery document. keysURI is the URL of the keys.
func (t *Tokens) Issuer(keysURI string) IssuerDocument {
	d := IssuerDocument{
		Issuer: t.cfg.Issuers[0], KeysURI: keysURI,
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"},
	}
	for _, a := range t.cfg.Keys().allowed {
		d.Algorithms = append(d.Algorithms, string(a))
	}
	slices.Sort(d.Algorithms)
	d.Algorithms = slices.Compact(d.Algorithms)
	return d
}

// Keys returns the public keys, sorted by ID.
func (t *Tokens) Keys() jose.JSONWebKeySet {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for id, key := range t.cfg.Keys().public {
		alg, err := jwtkey.Algorithm(key)
		if err != nil {
			continue // NewKeySet accepts no such key
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(alg), Use: "sig"})
	}
	slices.SortFunc(set.Keys, func(a, b jose.JSONWebKey) int { return cmp.Compare(a.KeyID, b.KeyID) })
	return set
}
