package endpoints

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// position is where the next page of a list begins. Clients receive it as an opaque
// continue token.
type position struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`             // of all pages; -1: continue at the newest revision
	After    string `json:"start"`          // the last key sent, without the resource's prefix
	Left     int64  `json:"left,omitempty"` // number of objects after After, if known
}

const positionVersion = "meta.k8s.io/v1"

func (p position) token() (string, error) {
	p.Version = positionVersion
	data, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode continue token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(data), nil
}

// parsePosition decodes and checks a continue token. A client cannot forge one that
// leads outside the prefix it is used with.
func parsePosition(token string) (position, error) {
	var p position
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	if err != nil {
		return p, fmt.Errorf("continue key is not valid: %w", err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("continue key is not valid: %w", err)
	}
	switch {
	case p.Version != positionVersion:
		return p, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %q", p.Version)
	case p.Revision == 0 || p.Revision < -1:
		return p, errors.New("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case p.After == "" || path.Clean("/"+p.After) != "/"+strings.TrimSuffix(p.After, "/"):
		return p, errors.New("continue key is not valid: encoded start key empty or malformed (version meta.k8s.io/v1)")
	case p.Left < 0:
		return p, errors.New("continue key is not valid: negative count")
	}
	return p, nil
}

// expired returns the 410 for a token whose revision is compacted. The error
// carries a new token that continues at the same key of the newest revision.
func (p position) expired() error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	token, tokenErr := position{Revision: -1, After: p.After}.token()
	if tokenErr != nil {
		return tokenErr
	}
	err.ErrStatus.ListMeta = metav1.ListMeta{Continue: token}
	return err
}
