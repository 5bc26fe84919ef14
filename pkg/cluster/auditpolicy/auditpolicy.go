// Package auditpolicy writes the audit policy of a new cluster's apiserver.
package auditpolicy

import (
	_ "embed"

	"podium/pkg/cluster/files"
)

//go:embed policy.yaml
var policy []byte

// Write creates file with the audit policy. It does not change an existing
// file, which belongs to the operator.
func Write(file string) error { return files.WriteNew(file, policy, 0o600) }
