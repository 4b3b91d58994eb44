// The parts of the page that know no document.
import "./backup_test.mjs";
import "./conversation_test.mjs";
import "./format_test.mjs";
import "./markdown_test.mjs";
import "./metrics_test.mjs";
import "./stream_test.mjs";
import "./tool_calls_test.mjs";
