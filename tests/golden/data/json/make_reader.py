"""usage: make_reader.py OUT.jsonl (needs deepseek-recipe==0.2.0). Cases for the JSON reader: what deepseek-recipe 0.2.0 accepts as a tool's parameters and how it writes it back."""
import json, random, sys
import deepseek_recipe as d
H='{"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"a","parameters":{"type":"object","x":'
T='}}}]}'
def run(text):
    try: c=d.ChatCompletionRequest(H+text+T).convert(d.ConversionOptions())
    except ValueError as e:
        if str(e).startswith('invalid JSON'): return None
        raise
    p=d.DeepseekV41Encoding().render_conversation(c.conversation).prompt
    i=p.index('"parameters": {"type": "object", "x": ')+len('"parameters": {"type": "object", "x": ')
    py=p[i:p.index('\n',i)][:-2]
    oc=c.inference_options.output_constraint.schema
    j=oc.index('"parameters":{"type":"object","x":')+len('"parameters":{"type":"object","x":')
    co=oc[j:-len('},"strict":null}}]')]
    return py,co
rng=random.Random(5)
cases=[]
nums='0 -0 1 -1 9 10 007 -01 00 0.0 -0.0 0.00 1.0 1. .5 -.5 +1 - -- 1e 1e+ 1e- 1E5 1e05 1e+05 1e-05 1e5e 1e5.0 1.5.2 0x1F 1_000 1e22 1e23 9007199254740992 9007199254740993 9007199254740993.0 18446744073709551615 18446744073709551616 18446744073709551616.0 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 99999999999999999999 10000000000000000000 12345678901234567890123 1e308 1e309 -1e309 1.7976931348623157e308 1.7976931348623159e308 2.2250738585072011e-308 5e-324 2e-324 3e-324 1e-400 0e999999999999 0e-99999999999 1e-99999999999999 0.1 0.2 0.30000000000000004 123456789.123456789 3.141592653589793238462643383279 1.1 1.10 100 100.0 1e2 123e-2 0.000001 0.0000001 1e16 1e15 123456789012345678901234567890.5e-10 4.35 0.5e1 NaN nan Infinity -Infinity inf 1f 1L 1n 0e 0e0 0.e1 1.e1 -0e1 2.00000000000000011102230246251565 1.00000000000000011102230246251565 7.2057594037927933e16 8.5e-5 0.0001 0.00012345'.split()
cases+=nums+['1'*k for k in (18,19,20,21,40,309,310,400)]+['-'+'1'*k for k in (18,19,20,310)]+['0.'+'0'*400+'1','0.'+'1'*500,'1'+'0'*300+'.0e-300','1'+'0'*30,'1.'+'0'*50+'1']
strs=['""','"a"','"','"a','a"',"'a'",'"\\"','"\\""','"\\\\"','"\\/"','"\\b\\f\\n\\r\\t"','"\\a"','"\\x41"','"\\u0041"','"\\u004"','"\\u00zz"','"\\uD83D\\uDE00"','"\\ud83d\\ude00"','"\\ud83d"','"\\ud83dx"','"\\ud83d\\n"','"\\ude00"','"\\ude00\\ud83d"','"\\ud83d\\ud83d\\ude00"','"\\u0000"','"\\u001f\\u007f\\u0080\\u2028\\u2029\\ufeff\\uffff"','"\x00"','"\x1f"','"\n"','"\t"','"\x7f"','"é😀"','"\\U0001F600"','"\\u"','"\\','"a\\','"abc\\u0020def\\\\"','"'+'x'*100+'\\n'+'y'*100+'"','"\u2028"']
cases+=strs
lits=['true','false','null','True','tru','truee','nul','nulll','fals','TRUE','undefined','','  ','\t\n\r 1 ','\x0b1','\x0c1','\u00a01','1 2','1,','[1,]','[,1]','[,]','[','[1','[1,','[1 2]','[]','[ ]','[1,2,3]','[[]]','[]]','{}','{ }','{"a"}','{"a":}','{"a":1,}','{,}','{"a":1 "b":2}','{"a" 1}','{a:1}',"{'a':1}",'{1:1}','{null:1}','{"a":1','{"a":1}}','{"a":1,"a":2}','{"a":1,"b":2,"a":3,"c":4,"b":5}','{"":1,"":2}','{"a":{"a":1,"a":2},"a":{"b":1}}','{"\\u0061":1,"a":2}','//x\n1','/*x*/1','1//x','#','\ufeff1','[1]x','{"a":[{"b":[{"c":null}]}]}','[true,false,null]','"a" "b"','[1\n,\t2\r]']
cases+=lits
cases.append('{'+','.join('"k%d":%d'%(i%37,i) for i in range(100))+'}')
cases.append('{'+','.join('"%s":%d'%(rng.choice('abcdefghijklmnopqrstuvwxyz')*rng.randint(1,2),i) for i in range(60))+'}')
for k in (100,121,122,123,124,125,126,127): cases.append('['*k+']'*k); cases.append('{"a":'*k+'1'+'}'*k)
def val(dp=0):
    x=rng.random()
    if dp>3 or x<.5:
        return rng.choice([lambda:str(rng.randint(-10**rng.randint(1,22),10**rng.randint(1,22))),lambda:repr(rng.uniform(-1,1)*10**rng.randint(-320,300)),lambda:'%.*f'%(rng.randint(0,25),rng.uniform(-1e6,1e6)),lambda:'%d.%de%d'%(rng.randint(0,10**9),rng.randint(0,10**rng.randint(1,20)),rng.randint(-330,310)),lambda:json.dumps(''.join(rng.choice('ab"\\\n\t\u00e9\u6f22\U0001f600\x01\x7f/') for _ in range(rng.randint(0,12))),ensure_ascii=rng.random()<.5),lambda:rng.choice(['true','false','null'])])()
    ws=lambda:rng.choice(['','',' ','\n','\t\r'])
    if x<.75: return '['+ws()+(ws()+','+ws()).join(val(dp+1) for _ in range(rng.randint(0,5)))+ws()+']'
    return '{'+ws()+(ws()+','+ws()).join('"%s"%s:%s'%(rng.choice('abcdefgh'),ws(),val(dp+1)) for _ in range(rng.randint(0,6)))+ws()+'}'
for _ in range(1500): cases.append(val())
base=[val() for _ in range(400)]
for b in base:      # one byte changed, dropped or doubled
    for _ in range(3):
        if not b: continue
        i=rng.randrange(len(b)); k=rng.random()
        c=b[:i]+(rng.choice('{}[],:"\\ 0-.eE+tn\x01a') if k<.5 else '' if k<.8 else b[i]*2)+b[i+1:]
        cases.append(c)
out=open(sys.argv[1],'w'); seen=set(); ok=bad=0
for c in cases:
    if c in seen: continue
    seen.add(c)
    try: r=run(c)
    except UnicodeEncodeError: continue
    except (ValueError,AssertionError) as e: print('skip',c[:60],e); continue
    row={"text":c,"ok":r is not None}
    if r: row["python"],row["compact"]=r; ok+=1
    else: bad+=1
    out.write(json.dumps(row,ensure_ascii=False)+'\n')
print(ok,bad)
