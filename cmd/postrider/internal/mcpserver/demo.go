package mcpserver

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/postrider/postrider/cmd/postrider/internal/mcpdemo"
)

// Demonstrate adds the tool "demo", which breaks and corrects what the other tools show.
func (s *Server) Demonstrate(w *mcpdemo.World) { s.demo = w }

func demoTool() *mcp.Tool {
	var steps, about []string
	for _, step := range mcpdemo.Steps {
		steps, about = append(steps, step.Name), append(about, step.Name+": "+step.Does)
	}
	no := false
	return &mcp.Tool{
		Name: "demo",
		Description: "Has something happen to the shop of this demo, whose outbox the other tools show, and returns what to look at. Steps: " +
			strings.Join(about, "; ") + ".",
		InputSchema: map[string]any{
			"type": "object", "required": []string{"step"}, "additionalProperties": false,
			"properties": map[string]any{"step": map[string]any{"type": "string", "enum": steps}},
		},
		OutputSchema: answered, Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no},
	}
}

func (s *Server) takeStep(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	given, err := arguments(req, []string{"step"}, nil)
	if err != nil {
		return failed(err), nil
	}
	done, err := s.demo.Take(ctx, given["step"])
	if err != nil {
		return failed(err), nil
	}
	return answer(done), nil
}
