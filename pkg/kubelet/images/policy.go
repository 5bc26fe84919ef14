package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// VerificationPolicy selects the images on the node that a pod may use only with
// credentials: KubeletConfiguration's imagePullCredentialsVerificationPolicy.
type VerificationPolicy string

// The policies, with upstream's names.
const (
	NeverVerify                  VerificationPolicy = "NeverVerify"
	NeverVerifyPreloadedImages   VerificationPolicy = "NeverVerifyPreloadedImages" // pods may use images that the kubelet did not pull
	NeverVerifyAllowlistedImages VerificationPolicy = "NeverVerifyAllowlistedImages"
	AlwaysVerify                 VerificationPolicy = "AlwaysVerify"
)

// Verification is the policy with its allowlist. The zero value is
// NeverVerifyPreloadedImages.
type Verification struct {
	Policy VerificationPolicy
	// Allowlist has full image names without tag and digest, or prefixes that
	// end with /*. It must be empty with other policies than
	// NeverVerifyAllowlistedImages.
	Allowlist []string
}

// Validate returns all errors, joined.
func (v *Verification) Validate() error {
	var errs []error
	switch v.Policy {
	case "", NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify:
	default:
		errs = append(errs, fmt.Errorf("unknown image pull credentials verification policy %q: want %s, %s, %s or %s",
			v.Policy, NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify))
	}
	if len(v.Allowlist) > 0 && v.Policy != NeverVerifyAllowlistedImages {
		errs = append(errs, fmt.Errorf("an allowlist of preloaded images needs the policy %s", NeverVerifyAllowlistedImages))
	}
	for _, pattern := range v.Allowlist {
		if err := validatePattern(pattern); err != nil {
			errs = append(errs, fmt.Errorf("allowlist pattern %q: %w", pattern, err))
		}
	}
	return errors.Join(errs...)
}

func validatePattern(pattern string) error {
	prefix, wildcard := strings.CutSuffix(pattern, "/*")
	switch {
	case pattern != strings.TrimSpace(pattern):
		return errors.New("leading or trailing spaces are not allowed")
	case wildcard && prefix == "":
		return errors.New("at least the registry's host is required")
	case strings.Contains(prefix, "*"):
		return errors.New("only patterns that end with /* are allowed")
	case wildcard:
		return nil
	case !validName(pattern):
		return errors.New("not an image name")
	case repository(pattern) != pattern:
		return errors.New("want the full name, with the registry and without tag and digest")
	}
	return nil
}

// required reports whether a pod needs credentials for an image on the node.
func (v *Verification) required(image string, pulledByKubelet bool) bool {
	switch v.Policy {
	case NeverVerify:
		return false
	case AlwaysVerify:
		return true
	case NeverVerifyAllowlistedImages:
		return !slices.ContainsFunc(v.Allowlist, func(pattern string) bool { return allowlisted(pattern, repository(image)) })
	}
	return pulledByKubelet
}

func allowlisted(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return name == pattern
}
