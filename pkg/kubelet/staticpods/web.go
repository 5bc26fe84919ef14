package staticpods

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/podspec"
)

// webTimeout limits a request for manifests.
const webTimeout = 10 * time.Second

// web reads the manifests that a URL has: a Pod or a PodList.
type web struct {
	url    string
	header http.Header
	client *http.Client
	node   string
}

// pods returns the pods. With an error, it returns the valid ones of a list, or nil if it
// is not known which pods there are.
func (w *web) pods(ctx context.Context, now time.Time) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, webTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return nil, bare(err)
	}
	req.Header = w.header.Clone()
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, bare(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", resp.Status)
	}
	data, err := readAtMost(resp.Body)
	if err != nil {
		return nil, err
	}
	return origin{kind: podspec.HTTPSource, name: w.url, node: w.node}.decodeList(data, now)
}

// bare returns the error without the URL, which may hold a credential.
func bare(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
