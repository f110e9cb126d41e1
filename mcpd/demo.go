package mcpd

import (
	"context"
	"io"
)

// Demo placeholder.
func Demo(ctx context.Context, w io.Writer) error { return nil }
