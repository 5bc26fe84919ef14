// Package jwtkey signs JSON Web Tokens with the cluster's keys, and names these
// keys as upstream does. The apiserver signs and verifies, a controller signs
// the tokens kept in secrets.
package jwtkey
