/* templates_data.c - written by tools/gen_recipe_templates.py from src/recipe/templates; do not edit.
 * The strings are those of deepseek-recipe 0.2.0, under the MIT licence: templates/LICENSE.deepseek-recipe. */
#include "recipe/templates.h"

static const by_recipe_part v41_reasoning_effort_high[] = {
    {"Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n"
     "\n",
     91, BY_PART_TEXT},
};

static const by_recipe_part v41_reasoning_effort_low[] = {
    {"Reasoning Effort: 50 (range 1-100, the higher the value, the more thorough the reasoning)\n"
     "\n",
     91, BY_PART_TEXT},
};

static const by_recipe_part v41_reasoning_effort_max[] = {
    {"Reasoning Effort: 100 (range 1-100, the higher the value, the more thorough the reasoning)\n"
     "\n",
     92, BY_PART_TEXT},
};

static const by_recipe_part v41_reasoning_effort_xhigh[] = {
    {"Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n"
     "\n",
     91, BY_PART_TEXT},
};

static const by_recipe_part v41_required_tool_suffix[] = {
    {"\n"
     "\n"
     "<",
     3, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" calls>\n",
     8, BY_PART_TEXT},
};

static const by_recipe_part v41_response_format_json_object[] = {
    {"\n"
     "\n"
     "## Response Format:\n"
     "\n"
     "You MUST strictly adhere to the following schema to reply:\n"
     "{\"type\": \"json_object\"}",
     105, BY_PART_TEXT},
};

static const by_recipe_part v41_response_format_json_schema[] = {
    {"\n"
     "\n"
     "## Response Format:\n"
     "\n"
     "You MUST strictly adhere to the following schema to reply:\n",
     82, BY_PART_TEXT},
    {NULL, 0, BY_PART_SLOT},
};

static const by_recipe_part v41_tools_section[] = {
    {"\n"
     "\n"
     "## Tools\n"
     "\n"
     "You have access to a set of tools to help answer the user's question. You can invoke tools b"
     "y writing a \"<",
     118, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" calls>\" block like the following:\n"
     "\n"
     "<",
     37, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" calls>\n"
     "<",
     9, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" invoke name=\"$TOOL_NAME\">\n"
     "<",
     28, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</",
     72, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" parameter>\n"
     "...\n"
     "</",
     18, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" invoke>\n"
     "<",
     10, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" invoke name=\"$TOOL_NAME2\">\n"
     "...\n"
     "</",
     34, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" invoke>\n"
     "</",
     11, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {" calls>\n"
     "\n"
     "String parameters should be specified as is and set `string=\"true\"`. For all other types ("
     "numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\""
     "`.\n"
     "\n"
     "If thinking_mode is enabled (triggered by ",
     235, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_THINKING_START},
    {"), you MUST output your complete reasoning inside ",
     50, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_THINKING_START},
    {"...",
     3, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_THINKING_END},
    {" BEFORE any tool calls or final response.\n"
     "\n"
     "Otherwise, output directly after ",
     76, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_THINKING_END},
    {" with tool calls or final response.\n"
     "\n"
     "### Available Tool Schemas\n"
     "\n",
     65, BY_PART_TEXT},
    {NULL, 0, BY_PART_SLOT},
    {"\n"
     "\n"
     "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool ca"
     "lls.\n",
     99, BY_PART_TEXT},
};

static const by_recipe_part v41_updated_tools_section[] = {
    {"\n"
     "\n"
     "### Updated Tool Schemas\n"
     "\n",
     28, BY_PART_TEXT},
    {NULL, 0, BY_PART_SLOT},
};

static const by_recipe_part v4_messages_mid_system[] = {
    {"<system-reminder>\n",
     18, BY_PART_TEXT},
    {NULL, 0, BY_PART_SLOT},
    {"\n"
     "</system-reminder>",
     19, BY_PART_TEXT},
};

static const by_recipe_part v4_reasoning_effort_high[] = {
    {"Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
     "You MUST be very thorough in your thinking and comprehensively decompose the problem to reso"
     "lve the root cause, rigorously stress-testing your logic against all potential paths, edge c"
     "ases, and adversarial scenarios.\n"
     "Explicitly write out your entire deliberation process, documenting every intermediate step, "
     "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left u"
     "nchecked.\n"
     "\n",
     476, BY_PART_TEXT},
};

static const by_recipe_part v4_reasoning_effort_max[] = {
    {"Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
     "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhau"
     "stively decompose the problem into its most fundamental components, trace every causal chain"
     " to its root, and resolve the underlying cause rather than any surface symptom.\n"
     "Do not stop reasoning until you have independently verified the solution from multiple angle"
     "s and are certain that no assumption remains unchecked and no error remains undiscovered.\n"
     "\n",
     528, BY_PART_TEXT},
};

static const by_recipe_part v4_reasoning_effort_xhigh[] = {
    {"Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
     "You MUST be very thorough in your thinking and comprehensively decompose the problem to reso"
     "lve the root cause, rigorously stress-testing your logic against all potential paths, edge c"
     "ases, and adversarial scenarios.\n"
     "Explicitly write out your entire deliberation process, documenting every intermediate step, "
     "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left u"
     "nchecked.\n"
     "\n",
     476, BY_PART_TEXT},
};

static const by_recipe_part v4_required_tool_suffix[] = {
    {"\n"
     "\n"
     "<",
     3, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"tool_calls>\n",
     12, BY_PART_TEXT},
};

static const by_recipe_part v4_response_format_json_object[] = {
    {"\n"
     "\n"
     "You are a helpful assistant designed to output JSON.\n"
     "## Response Format:\n"
     "\n"
     "Reply with JSON object ONLY.",
     104, BY_PART_TEXT},
};

static const by_recipe_part v4_response_format_json_schema[] = {
    {"\n"
     "\n"
     "## Response Format:\n"
     "\n"
     "You MUST strictly adhere to the following schema to reply:\n",
     82, BY_PART_TEXT},
    {NULL, 0, BY_PART_SLOT},
};

static const by_recipe_part v4_tools_section[] = {
    {"\n"
     "\n"
     "## Tools\n"
     "\n"
     "You have access to a set of tools to help answer the user's question. You can invoke tools b"
     "y writing a \"<",
     118, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"tool_calls>\" block like the following:\n"
     "\n"
     "<",
     41, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"tool_calls>\n"
     "<",
     13, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"invoke name=\"$TOOL_NAME\">\n"
     "<",
     27, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</",
     71, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"parameter>\n"
     "...\n"
     "</",
     17, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"invoke>\n"
     "<",
     9, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"invoke name=\"$TOOL_NAME2\">\n"
     "...\n"
     "</",
     33, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"invoke>\n"
     "</",
     10, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_DSML},
    {"tool_calls>\n"
     "\n"
     "String parameters should be specified as is and set `string=\"true\"`. For all other types ("
     "numbers, booleans, arrays, objects), pass the value in JSON format and set `string=\"false\""
     "`.\n"
     "\n"
     "If thinking_mode is enabled (triggered by ",
     239, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_THINKING_START},
    {"), you MUST output your complete reasoning inside ",
     50, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_THINKING_START},
    {"...",
     3, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_THINKING_END},
    {" BEFORE any tool calls or final response.\n"
     "\n"
     "Otherwise, output directly after ",
     76, BY_PART_TEXT},
    {NULL, 0, BY_SPECIAL_THINKING_END},
    {" with tool calls or final response.\n"
     "\n"
     "### Available Tool Schemas\n"
     "\n",
     65, BY_PART_TEXT},
    {NULL, 0, BY_PART_SLOT},
    {"\n"
     "\n"
     "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool ca"
     "lls.\n",
     99, BY_PART_TEXT},
};

const by_recipe_template by_recipe_templates[BY_TEMPLATE_N] = {
    [BY_TEMPLATE_V41_REASONING_EFFORT_HIGH] = {"v41_reasoning_effort_high", v41_reasoning_effort_high, 1},
    [BY_TEMPLATE_V41_REASONING_EFFORT_LOW] = {"v41_reasoning_effort_low", v41_reasoning_effort_low, 1},
    [BY_TEMPLATE_V41_REASONING_EFFORT_MAX] = {"v41_reasoning_effort_max", v41_reasoning_effort_max, 1},
    [BY_TEMPLATE_V41_REASONING_EFFORT_XHIGH] = {"v41_reasoning_effort_xhigh", v41_reasoning_effort_xhigh, 1},
    [BY_TEMPLATE_V41_REQUIRED_TOOL_SUFFIX] = {"v41_required_tool_suffix", v41_required_tool_suffix, 3},
    [BY_TEMPLATE_V41_RESPONSE_FORMAT_JSON_OBJECT] = {"v41_response_format_json_object", v41_response_format_json_object, 1},
    [BY_TEMPLATE_V41_RESPONSE_FORMAT_JSON_SCHEMA] = {"v41_response_format_json_schema", v41_response_format_json_schema, 2},
    [BY_TEMPLATE_V41_TOOLS_SECTION] = {"v41_tools_section", v41_tools_section, 29},
    [BY_TEMPLATE_V41_UPDATED_TOOLS_SECTION] = {"v41_updated_tools_section", v41_updated_tools_section, 2},
    [BY_TEMPLATE_V4_MESSAGES_MID_SYSTEM] = {"v4_messages_mid_system", v4_messages_mid_system, 3},
    [BY_TEMPLATE_V4_REASONING_EFFORT_HIGH] = {"v4_reasoning_effort_high", v4_reasoning_effort_high, 1},
    [BY_TEMPLATE_V4_REASONING_EFFORT_LOW] = {"v4_reasoning_effort_low", NULL, 0},
    [BY_TEMPLATE_V4_REASONING_EFFORT_MAX] = {"v4_reasoning_effort_max", v4_reasoning_effort_max, 1},
    [BY_TEMPLATE_V4_REASONING_EFFORT_XHIGH] = {"v4_reasoning_effort_xhigh", v4_reasoning_effort_xhigh, 1},
    [BY_TEMPLATE_V4_REQUIRED_TOOL_SUFFIX] = {"v4_required_tool_suffix", v4_required_tool_suffix, 3},
    [BY_TEMPLATE_V4_RESPONSE_FORMAT_JSON_OBJECT] = {"v4_response_format_json_object", v4_response_format_json_object, 1},
    [BY_TEMPLATE_V4_RESPONSE_FORMAT_JSON_SCHEMA] = {"v4_response_format_json_schema", v4_response_format_json_schema, 2},
    [BY_TEMPLATE_V4_TOOLS_SECTION] = {"v4_tools_section", v4_tools_section, 29},
};

const by_str by_recipe_apply_patch_json = {
    "{\n"
    " \"name\": \"apply_patch\",\n"
    " \"description\": \"Use the `apply_patch` tool to edit files.\\nYour patch language is a str"
    "ipped‑down, file‑oriented diff format designed to be easy to parse and safe to apply. You ca"
    "n think of it as a high‑level envelope:\\n\\n*** Begin Patch\\n[ one or more file sections ]"
    "\\n*** End Patch\\n\\nWithin that envelope, you get a sequence of file operations.\\nYou MUS"
    "T include a header to specify the action you are taking.\\nEach operation starts with one of"
    " three headers:\\n\\n*** Add File: <path> - create a new file. Every following line is a + l"
    "ine (the initial contents).\\n*** Delete File: <path> - remove an existing file. Nothing fol"
    "lows.\\n*** Update File: <path> - patch an existing file in place (optionally with a rename)"
    ".\\n\\nMay be immediately followed by *** Move to: <new path> if you want to rename the file"
    ".\\nThen one or more “hunks”, each introduced by @@ (optionally followed by a hunk header).\\"
    "nWithin a hunk each line starts with:\\n\\nFor instructions on [context_before] and [context"
    "_after]:\\n- By default, show 3 lines of code immediately above and 3 lines immediately belo"
    "w each change. If a change is within 3 lines of a previous change, do NOT duplicate the firs"
    "t change’s [context_after] lines in the second change’s [context_before] lines.\\n- If 3 lin"
    "es of context is insufficient to uniquely identify the snippet of code within the file, use "
    "the @@ operator to indicate the class or function to which the snippet belongs. For instance"
    ", we might have:\\n@@ class BaseClass\\n[3 lines of pre-context]\\n- [old_code]\\n+ [new_cod"
    "e]\\n[3 lines of post-context]\\n\\n- If a code block is repeated so many times in a class o"
    "r function such that even a single `@@` statement and 3 lines of context cannot uniquely ide"
    "ntify the snippet of code, you can use multiple `@@` statements to jump to the right context"
    ". For instance:\\n\\n@@ class BaseClass\\n@@ \\t def method():\\n[3 lines of pre-context]\\n"
    "- [old_code]\\n+ [new_code]\\n[3 lines of post-context]\\n\\nThe full grammar definition is "
    "below:\\nPatch := Begin { FileOp } End\\nBegin := \\\"*** Begin Patch\\\" NEWLINE\\nEnd := \\"
    "\"*** End Patch\\\" NEWLINE\\nFileOp := AddFile | DeleteFile | UpdateFile\\nAddFile := \\\"*"
    "** Add File: \\\" path NEWLINE { \\\"+\\\" line NEWLINE }\\nDeleteFile := \\\"*** Delete Fil"
    "e: \\\" path NEWLINE\\nUpdateFile := \\\"*** Update File: \\\" path NEWLINE [ MoveTo ] { Hun"
    "k }\\nMoveTo := \\\"*** Move to: \\\" newPath NEWLINE\\nHunk := \\\"@@\\\" [ header ] NEWLIN"
    "E { HunkLine } [ \\\"*** End of File\\\" NEWLINE ]\\nHunkLine := (\\\" \\\" | \\\"-\\\" | \\"
    "\"+\\\") text NEWLINE\\n\\nA full patch can combine several operations:\\n\\n*** Begin Patch"
    "\\n*** Add File: hello.txt\\n+Hello world\\n*** Update File: src/app.py\\n*** Move to: src/m"
    "ain.py\\n@@ def greet():\\n-print(\\\"Hi\\\")\\n+print(\\\"Hello, world!\\\")\\n*** Delete F"
    "ile: obsolete.txt\\n*** End Patch\\n\\nIt is important to remember:\\n\\n- You must include "
    "a header with your intended action (Add/Delete/Update)\\n- You must prefix new lines with `+"
    "` even when creating a new file\\n- File references can only be relative, NEVER ABSOLUTE.\\n"
    "\",\n"
    " \"parameters\": {\n"
    "  \"type\": \"object\",\n"
    "  \"additionalProperties\": false,\n"
    "  \"properties\": {\n"
    "   \"input\": {\n"
    "    \"type\": \"string\",\n"
    "    \"description\": \"The entire contents of the apply_patch command (the *** Begin Patch ."
    ".. *** End Patch envelope).\"\n"
    "   }\n"
    "  },\n"
    "  \"required\": [\n"
    "   \"input\"\n"
    "  ]\n"
    " }\n"
    "}\n",
    3334};
