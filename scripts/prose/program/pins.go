//go:build pins

// Package pins keeps the prose linter in go.mod; nothing imports it.
package pins

import _ "github.com/errata-ai/vale/v2/cmd/vale"
